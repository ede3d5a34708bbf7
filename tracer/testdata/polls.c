/*
 * Polls of a queue on command, of the shape that a provider's have: the index is
 * raised, and then the instruction at "consumed" runs.  Commands are bytes on
 * stdin, each answered on stdout:
 *	p	polls; "w" once it is inside, where it stays until "g"; then "d"
 *	m	polls, and takes the completion elsewhere; "d"
 *	c	destroys a QP, which takes an entry from the queue; "d"
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t ring[64 * 8], buf[1] = { (uint64_t)ring }, wc[6];

static struct {
	uint64_t context[3];
	uint32_t handle, cqe;	/* struct ibv_cq */
	uint64_t more[28];
	uint32_t cons_index, cqe_size;	/* at 256 */
	uint64_t *active_buf;
} cq = { .cqe = 63, .cqe_size = 64, .active_buf = buf };

static char command;

static char get(void)
{
	char c;

	if (read(0, &c, 1) != 1)
		exit(0);
	return c;
}

static void answer(char c)
{
	if (write(1, &c, 1) != 1)
		exit(1);
}

/* Whether the completion is taken elsewhere. */
int inside(void)
{
	if (command == 'm')
		return 1;
	answer('w');
	get();
	return 0;
}

int poll_cq(void *cq, int want, void *wc);
asm(".text\n"
    ".type poll_cq, @function\n"
    "poll_cq:\n"
    "	push %rbx\n"
    "	push %r12\n"
    "	sub $8, %rsp\n"
    "	mov %rdi, %rbx\n"
    "	mov %rdx, %r12\n"
    "	call inside\n"
    "	incl 256(%rbx)\n"
    "	test %eax, %eax\n"
    "	jne 1f\n"
    ".type consumed, @function\n"
    "consumed:\n"
    "	nop\n"
    "1:	mov $1, %eax\n"
    "	add $8, %rsp\n"
    "	pop %r12\n"
    "	pop %rbx\n"
    "	ret\n");

__attribute__((noinline)) int destroy_qp(void *qp)
{
	asm volatile("" : : "r"(qp) : "memory");
	cq.cons_index++;
	return 0;
}

int main(void)
{
	for (;;) {
		command = get();
		if (command == 'c')
			destroy_qp(&cq);
		else
			poll_cq(&cq, 1, wc);
		answer('d');
	}
}
