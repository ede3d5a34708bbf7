package tracer

import "debug/elf"

// machine is the architecture of the targets.
const machine = elf.EM_X86_64
