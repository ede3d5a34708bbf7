package attribution

// waitCalls are the numbers of system calls whose meaning the engine knows:
// sched_yield, and those in which a thread may wait for a completion channel.
type waitCalls struct {
	yield int32
	reads []int32 // of the channel's descriptor itself
	polls []int32 // of a set of descriptors
}

func newWaitCalls(arch string) waitCalls {
	return waitCalls{
		yield: numbersOf(arch, "sched_yield")[0],
		reads: numbersOf(arch, "read", "readv"),
		polls: numbersOf(arch, "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
	}
}

// numbersOf gives the numbers of system calls, those left out that the
// architecture does not have.
func numbersOf(arch string, names ...string) (numbers []int32) {
	x86 := (&naming{arch: arch}).x86()
	for i := range syscalls {
		s := &syscalls[i]
		nr := s.amd64
		if !x86 {
			nr = s.arm64
		}
		for _, name := range names {
			if s.name == name && nr >= 0 {
				numbers = append(numbers, nr)
			}
		}
	}
	return numbers
}
