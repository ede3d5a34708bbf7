/*
 * As tables.S, for arm64: poll functions that count by a jump table, each returns 0 or
 * 1.  Behind a table's three entries lies data which, taken for one more, leads to what
 * is no part of the function.
 */
	.macro function name
	.type \name, %function
\name:	.cfi_startproc
	mov w0, #0
	ldr w3, [x1]
	adrp x2, \name\()_table
	add x2, x2, :lo12:\name\()_table
	.endm

	/* As clang does: words off the table. */
	.macro jump
	ldrsw x4, [x2, w3, uxtw #2]
	add x4, x2, x4
	br x4
	.endm

	.macro ways
0:	ret
1:	add w0, w0, #1
	ret
2:	mov w5, #1
	b 1b
	.cfi_endproc
	.endm

	.macro cases name, last=2b
	ways
	.size \name, . - \name
	.pushsection .rodata
	.balign 4
\name\()_table:
	.word 0b - \name\()_table, 1b - \name\()_table, \last - \name\()_table
	.word 0x7fffffff
	.popsection
	.endm

	/* Bytes or halves, a quarter of what is added to an anchor in the code. */
	.macro parts name, type
	ways
	.size \name, . - \name
	.pushsection .rodata
	.balign 4
\name\()_table:
	.\type (0b - 9b) / 4, (1b - 9b) / 4, (2b - 9b) / 4, 0x7f
	.popsection
	.endm

	.text
	function bounded
	cmp w3, #2
	b.hi 0f
	jump
	cases bounded

	/* As gcc does. */
	function bytes
	cmp w3, #2
	b.hi 0f
	ldrb w2, [x2, w3, uxtw]
	adr x4, 9f
	add x2, x4, w2, sxtb #2
	br x2
9:	parts bytes, byte

	function halves
	cmp w3, #2
	b.hi 0f
	adr x4, 9f
	ldrh w2, [x2, w3, uxtw #1]
	add x2, x4, w2, sxth #2
	br x2
9:	parts halves, hword

	/* As clang does. */
	function eights
	cmp w3, #3
	b.hs 0f
	mov w3, w3
	adr x4, 9f
	ldrb w5, [x2, x3]
	add x4, x4, x5, lsl #2
	br x4
9:	parts eights, byte

	/* As libmlx5 does. */
	function shifted
	ubfx w4, w3, #4, #4
	cmp w3, #0x2f
	b.hi 0f
	mov w3, w4
	jump
	cases shifted

	/* With branch protection. */
	function marked
	cmp w3, #2
	b.hi 0f
	hint #36
	jump
	cases marked

	/* In a loop that calls, with the table's address kept. */
	function looped
	mov x19, x2
0:	bl bounded
	ldr w3, [x20]
	cmp w3, #3
	b.hs 0b
	mov x2, x19
	jump
	cases looped

	function unbounded
	jump
	cases unbounded

	/* A compare of something else. */
	function other
	cmp w6, #2
	b.hi 0f
	jump
	cases other

	/* One way to the jump passes no compare. */
	function one_way
	cbz w6, 4f
	cmp w3, #2
	b.hi 0f
4:	jump
	cases one_way

	/* What was compared is not the index any more. */
	function anew
	cmp w3, #2
	b.hi 0f
	ldr w3, [x1, #4]
	jump
	cases anew

	/* The jump is taken when it is below. */
	function above
	cmp w3, #2
	b.ls 0f
	jump
	cases above

	/* A signed compare. */
	function signed
	cmp w3, #2
	b.gt 0f
	jump
	cases signed

	/* The flags are another's. */
	function flags
	cmp w3, #2
	tst w6, w6
	b.hi 0f
	jump
	cases flags

	/* Only a byte was compared. */
	function part
	and w4, w3, #0xff
	cmp w4, #2
	b.hi 0f
	jump
	cases part

	/* The table is one of two. */
	function two
	cbz w6, 4f
	adrp x2, bounded_table
	add x2, x2, :lo12:bounded_table
4:	cmp w3, #2
	b.hi 0f
	jump
	cases two

	/* It leads out of the function. */
	function out
	cmp w3, #2
	b.hi 0f
	jump
	cases out, bounded

	.section .note.GNU-stack, "", %progbits
