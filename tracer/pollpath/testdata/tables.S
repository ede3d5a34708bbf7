/*
 * Poll functions that count by a jump table: each returns 0 or 1.  Behind a table's
 * three entries lies data which, taken for one more, leads into an instruction.
 */
	.macro function name
	.type \name, @function
\name:	.cfi_startproc
	xor %eax, %eax
	mov (%rdi), %ecx
	lea \name\()_table(%rip), %rdx
	.endm

	.macro jump
	movslq (%rdx,%rcx,4), %rcx
	add %rdx, %rcx
	jmp *%rcx
	.endm

	/* The immediate is inc %eax; nop; ret. */
	.macro cases name, last=2b
0:	ret
1:	inc %eax
	ret
2:	mov $0xc390c0ff, %esi
3:	jmp 1b
	.cfi_endproc
	.size \name, . - \name
	.pushsection .rodata
	.balign 4
\name\()_table:
	.long 0b - \name\()_table, 1b - \name\()_table, \last - \name\()_table
	.long 2b + 1 - \name\()_table
	.long 0x7fffffff
	.popsection
	.endm

	.text
	function bounded
	cmp $2, %ecx
	ja 0f
	jump
	cases bounded

	/* As libmlx5 does. */
	function shifted
	mov %ecx, %esi
	shr $4, %sil
	cmp $0x2f, %cl
	ja 0f
	movzbl %sil, %ecx
	jump
	cases shifted

	/* In a loop that calls, with the table's address kept. */
	function looped
	mov %rdx, %rbx
0:	call bounded
	mov (%rdi), %ecx
	cmp $3, %ecx
	jae 0b
	mov %rbx, %rdx
	jump
	cases looped

	/* Both ways to the jump are bounded. */
	function both
	test %esi, %esi
	je 4f
	cmp $1, %ecx
	jbe 5f
	ret
4:	cmp $2, %ecx
	ja 0f
5:	jump
	cases both

	function unbounded
	jump
	cases unbounded

	/* A compare of something else. */
	function other
	cmp $2, %esi
	ja 0f
	jump
	cases other

	/* One way to the jump passes no compare. */
	function one_way
	test %esi, %esi
	je 4f
	cmp $2, %ecx
	ja 0f
4:	jump
	cases one_way

	/* What was compared is not the index any more. */
	function anew
	cmp $2, %ecx
	ja 0f
	mov 4(%rdi), %ecx
	jump
	cases anew

	/* The jump is taken when it is below. */
	function above
	cmp $2, %ecx
	jbe 0f
	jump
	cases above

	/* A signed compare. */
	function signed
	cmp $2, %ecx
	jg 0f
	jump
	cases signed

	/* The flags are another's. */
	function flags
	cmp $2, %ecx
	test %esi, %esi
	ja 0f
	jump
	cases flags

	/* Only a byte was compared. */
	function part
	cmp $2, %cl
	ja 0f
	jump
	cases part

	/* The table is one of two. */
	function two
	test %esi, %esi
	je 4f
	lea bounded_table(%rip), %rdx
4:	cmp $2, %ecx
	ja 0f
	jump
	cases two

	/* It leads out of the function. */
	function out
	cmp $2, %ecx
	ja 0f
	jump
	cases out, bounded

	/* It leads into an instruction that runs. */
	function inside
	cmp $3, %ecx
	ja 2f
	jump
	cases inside

	.section .note.GNU-stack, "", @progbits
