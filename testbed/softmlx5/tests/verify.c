/*
 * Data integrity over the emulated device: two QPs of one process, every
 * operation, many sizes and scatter lists, with enough requests to wrap the
 * rings.  Prints "verify: OK" or the first difference.
 */
#include <string.h>
#include "verify.h"

static struct rdma r;
static struct buffers b;
static struct ibv_cq *cq;
static struct ibv_qp *qp[2];

static void expect_success(int n)
{
	struct ibv_wc wc;

	while (n--) {
		rdma_poll(cq, &wc);
		if (wc.status)
			fprintf(stderr, "status %s\n", ibv_wc_status_str(wc.status));
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
}

static bool takes_receive(int op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM ||
	       op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* One transfer of LEN bytes in NSGE pieces. */
static void transfer(int op, uint32_t len, int nsge, bool inl)
{
	struct ibv_sge s[8], d[8];
	struct ibv_send_wr w = { .wr_id = 1, .sg_list = s, .num_sge = nsge, .opcode = op,
		.send_flags = IBV_SEND_SIGNALED | (inl ? IBV_SEND_INLINE : 0),
		.imm_data = 0x12345678 }, *bad;
	struct ibv_recv_wr rw = { .wr_id = 2, .sg_list = d, .num_sge = nsge }, *bad_recv;
	bool read = op == IBV_WR_RDMA_READ;
	uint32_t part = len / nsge, off = 0;

	for (uint32_t i = 0; i < len; i++)
		b.src[i] = rand();
	memset(b.dst, 0xee, len + 64);
	for (int i = 0; i < nsge; i++) {
		uint32_t n = i == nsge - 1 ? len - off : part;

		s[i] = (struct ibv_sge){ (uintptr_t)(read ? b.dst : b.src) + off, n,
					 read ? b.md->lkey : b.ms->lkey };
		d[i] = (struct ibv_sge){ (uintptr_t)b.dst + off, n, b.md->lkey };
		off += n;
	}
	w.wr.rdma.remote_addr = (uintptr_t)(read ? b.src : b.dst);
	w.wr.rdma.rkey = read ? b.ms->rkey : b.md->rkey;
	if (takes_receive(op))
		CHECK(!ibv_post_recv(qp[1], &rw, &bad_recv));
	CHECK(!ibv_post_send(qp[0], &w, &bad));
	expect_success(takes_receive(op) ? 2 : 1);
	CHECK(!memcmp(b.src, b.dst, len));
	CHECK(b.dst[len] == 0xee && b.dst[len + 63] == 0xee);
}

static int verify_transfers(void)
{
	static const uint32_t sizes[] = { 1, 2, 8, 31, 32, 33, 63, 64, 100, 188, 236, 4096,
					  65536, 262143, SIZE - 64 };
	static const int ops[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				   IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ };
	int done = 0;

	for (int round = 0; round < 40; round++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			uint32_t n = sizes[i];

			if (n > 4096 && round > 2)
				continue;
			for (int o = 0; o < 5; o++) {
				transfer(ops[o], n, 1, false);
				done++;
				if (n >= 3) {
					transfer(ops[o], n, 3, false);
					done++;
				}
				if (n <= 236 && ops[o] != IBV_WR_RDMA_READ) {
					transfer(ops[o], n, n >= 3 ? 1 + round % 3 : 1, true);
					done++;
				}
			}
		}
	return done;
}

static void verify_atomics(void)
{
	uint64_t *remote = (uint64_t *)b.dst, *local = (uint64_t *)b.src;

	for (int i = 0; i < 200; i++) {
		bool swap = i & 1, match = i & 2;
		uint64_t old = rand();
		struct ibv_sge s = { (uintptr_t)local, 8, b.ms->lkey };
		struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED,
			.opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP :
					 IBV_WR_ATOMIC_FETCH_AND_ADD }, *bad;

		*remote = old;
		w.wr.atomic.remote_addr = (uintptr_t)remote;
		w.wr.atomic.rkey = b.md->rkey;
		w.wr.atomic.compare_add = swap ? (match ? old : old + 1) : 7;
		w.wr.atomic.swap = 99;
		CHECK(!ibv_post_send(qp[0], &w, &bad));
		expect_success(1);
		CHECK(*local == old);
		CHECK(*remote == (swap ? (match ? 99 : old) : old + 7));
	}
}

/* A bad key must be an error, and flush what follows. */
static void verify_error(void)
{
	struct ibv_sge s = { (uintptr_t)b.src, 8, b.ms->lkey };
	struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED }, w2 = w, *bad;
	struct ibv_wc wc;

	w.next = &w2;
	w.wr.rdma.remote_addr = w2.wr.rdma.remote_addr = (uintptr_t)b.dst;
	w.wr.rdma.rkey = b.md->rkey + 1;
	w2.wr.rdma.rkey = b.md->rkey;
	CHECK(!ibv_post_send(qp[0], &w, &bad));
	rdma_poll(cq, &wc);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	rdma_poll(cq, &wc);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
}

int main(void)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 4, 4, 236 } };
	int done;

	rdma_open(&r);
	cq = ibv_create_cq(r.ctx, 32, NULL, NULL, 0);
	b.src = malloc(SIZE);
	b.dst = malloc(SIZE);
	b.ms = ibv_reg_mr(r.pd, b.src, SIZE, ACCESS_ALL);
	b.md = ibv_reg_mr(r.pd, b.dst, SIZE, ACCESS_ALL);
	CHECK(cq && b.ms && b.md);
	a.send_cq = a.recv_cq = cq;
	for (int i = 0; i < 2; i++) {
		qp[i] = ibv_create_qp(r.pd, &a);
		CHECK(qp[i]);
	}
	rdma_connect(&r, qp[0], qp[1]);
	done = verify_transfers();
	verify_atomics();
	verify_error();
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(qp[i]));
	verify_srq(&r, cq, &b);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dereg_mr(b.ms) && !ibv_dereg_mr(b.md));
	rdma_close(&r);
	free(b.src);
	free(b.dst);
	printf("verify: OK, %d transfers\n", done);
	return 0;
}
