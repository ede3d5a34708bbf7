/*
 * A completion queue of the shape that verbs providers share: entries with an
 * owner bit, a switch over their opcode, a loop that counts what it consumed.
 * Compiled in many ways, it is material for the analysis; it runs, so hits can
 * be counted.  Prints the address of poll_cq, waits for a line on stdin, then
 * polls: EMPTY times with nothing there, and until COMPLETIONS were reaped; with
 * a third argument by start_poll or next_poll, which make one the current one.
 * Freestanding (-ffreestanding), it is the three functions alone.
 */
#include <stddef.h>
#include <stdint.h>

struct wc {
	uint64_t wr_id;
	uint32_t status, opcode, vendor_err, byte_len, imm, qp_num, src_qp, flags;
	uint16_t pkey, slid;
	uint8_t sl, bits, pad[2];
};

struct cqe {
	uint32_t qpn, len;
	uint16_t counter;
	uint8_t syndrome;
	volatile uint8_t op_own;	/* opcode << 4 | owner */
};

struct queue_pair {
	uint64_t wrid[64];
	uint32_t tail, num;
};

struct cq {
	struct cqe *buf;
	uint32_t mask, cons, lock;
	struct queue_pair *qp;
	uint32_t doorbell, status;
	uint64_t wr_id;
	struct cqe *current;
};

enum { OK, EMPTY, ERROR = -2 };

static struct cqe *next_cqe(struct cq *cq)
{
	struct cqe *e = &cq->buf[cq->cons & cq->mask];

	if (e->op_own >> 4 == 15 || (e->op_own & 1) != !!(cq->cons & (cq->mask + 1)))
		return NULL;
	cq->cons++;
	return e;
}

static int poll_one(struct cq *cq, struct wc *wc)
{
	struct cqe *e = next_cqe(cq);
	struct queue_pair *qp = cq->qp;

	if (!e)
		return EMPTY;
	wc->flags = 0;
	wc->qp_num = e->qpn & 0xffffff;
	switch (e->op_own >> 4) {
	case 0:
		wc->opcode = 1;
		wc->wr_id = qp->wrid[e->counter & 63];
		qp->tail = e->counter + 1;
		wc->status = 0;
		break;
	case 1:
		wc->flags |= 2;
		wc->opcode = 129;
		wc->byte_len = e->len;
		wc->status = 0;
		wc->wr_id = qp->wrid[qp->tail++ & 63];
		break;
	case 2:
		wc->opcode = 128;
		wc->byte_len = e->len;
		wc->status = 0;
		wc->wr_id = qp->wrid[qp->tail++ & 63];
		break;
	case 3:
		wc->flags |= 8;
		wc->opcode = 128;
		wc->imm = e->len;
		wc->status = 0;
		wc->wr_id = qp->wrid[qp->tail++ & 63];
		break;
	case 13:
	case 14:
		wc->status = e->syndrome + 1;
		wc->vendor_err = e->syndrome;
		wc->wr_id = qp->wrid[e->counter & 63];
		break;
	default:
		return ERROR;
	}
	return OK;
}

int poll_cq(struct cq *cq, int ne, struct wc *wc)
{
	int npolled, err = OK;

	cq->lock = 1;
	for (npolled = 0; npolled < ne; ++npolled) {
		err = poll_one(cq, wc + npolled);
		if (err != OK)
			break;
	}
	cq->doorbell = cq->cons & 0xffffff;
	cq->lock = 0;
	return err == ERROR ? err : npolled;
}

static int parse_lazy(struct cq *cq, struct cqe *e)
{
	struct queue_pair *qp = cq->qp;

	cq->current = e;
	switch (e->op_own >> 4) {
	case 0:
		cq->wr_id = qp->wrid[e->counter & 63];
		qp->tail = e->counter + 1;
		cq->status = 0;
		return OK;
	case 1:
	case 2:
	case 3:
		cq->status = e->len > 1 << 30;
		cq->wr_id = qp->wrid[qp->tail++ & 63];
		return OK;
	case 13:
	case 14:
		cq->status = e->syndrome + 1;
		if (e->counter > 1 << 14)
			return ERROR;
		cq->wr_id = qp->wrid[e->counter & 63];
		return OK;
	}
	return ERROR;
}

int start_poll(struct cq *cq, const uint32_t *attr)
{
	struct cqe *e;
	int err;

	if (*attr)
		return 22;
	cq->lock = 1;
	e = next_cqe(cq);
	if (!e) {
		cq->lock = 0;
		return 2;
	}
	err = parse_lazy(cq, e);
	if (err)
		cq->lock = 0;
	return err;
}

int next_poll(struct cq *cq, const uint32_t *unused)
{
	struct cqe *e = next_cqe(cq);

	(void)unused;
	return e ? parse_lazy(cq, e) : 2;
}

#if __STDC_HOSTED__
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Through a pointer, as ops->poll_cq is called: no copy may be inlined into main. */
static int (*volatile poll)(struct cq *, int, struct wc *) = poll_cq;
static int (*volatile poll_one_ex)(struct cq *, const uint32_t *);
static struct queue_pair qp;
static struct cqe ring[64];

static void produce(struct cq *cq, uint32_t index)
{
	static const uint8_t ops[] = { 0, 1, 2, 3, 13, 14 };
	struct cqe *e = &ring[index & 63];

	e->qpn = qp.num;
	e->counter = index;
	e->op_own = ops[index % 6] << 4 | !!(index & (cq->mask + 1));
}

/* Polls by start_poll or next_poll. */
static int poll_ex(struct cq *cq, struct wc *wc)
{
	static const uint32_t attr;
	int err = poll_one_ex(cq, &attr);

	if (err)
		return err == 2 ? 0 : -1;
	cq->doorbell = cq->cons & 0xffffff;
	cq->lock = 0;
	wc[0].qp_num = cq->current->qpn & 0xffffff;
	return 1;
}

int main(int argc, char **argv)
{
	uint32_t empty = argc > 1 ? atoi(argv[1]) : 1000, total = argc > 2 ? atoi(argv[2]) : 100;
	struct cq cq = { .buf = ring, .mask = 63, .qp = &qp };
	uint32_t made = 0, reaped = 0;
	struct wc wc[16];

	qp.num = 0x1234;
	for (int i = 0; i < 64; i++)
		ring[i].op_own = 0xf0, qp.wrid[i] = i;
	printf("%p\n", (void *)poll_cq);
	fflush(stdout);
	if (argc > 3)
		poll_one_ex = strcmp(argv[3], "start_poll") ? next_poll : start_poll;
	if (getchar() < 0)
		return 1;
	while (empty--)
		if (argc > 3 ? poll_ex(&cq, wc) : poll(&cq, 16, wc))
			return 2;
	for (int burst = 1; reaped < total; burst = burst % 20 + 1) {
		for (int i = 0; i < burst && made < total; i++)
			produce(&cq, made++);
		while (reaped < made) {
			int n = argc > 3 ? poll_ex(&cq, wc) : poll(&cq, 1 + burst % 16, wc);

			if (n <= 0 || wc[0].qp_num != qp.num)
				return 3;
			reaped += n;
		}
	}
	printf("%u\n", reaped);
	return 0;
}
#endif
