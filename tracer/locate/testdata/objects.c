// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Makes verbs objects, says where they are, and does as it is told:
 *   connect   the first two QPs of each other, to ready-to-send
 *   post N    N writes on each of them: all signalled, and only the last
 *   late      another CQ and QP
 *   modify    the latest QP to ready-to-send
 *   close     the second context, with what it has
 * It answers each with lines, the last of which is "done", and ends with its
 * standard input.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <linux/userfaultfd.h>

#define CHECK(x) do { if (!(x)) { perror(#x); exit(1); } } while (0)

static struct ibv_context *ctx, *second;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qps[16], *gone[16];
static struct ibv_mr *mr;
static char buffer[4096];

static struct ibv_cq *make_cq(struct ibv_context *c, int entries, struct ibv_comp_channel *ch, int ex)
{
	struct ibv_cq *q;

	if (ex) {
		struct ibv_cq_init_attr_ex attr = { .cqe = entries, .channel = ch,
			.wc_flags = IBV_WC_STANDARD_FLAGS };
		struct ibv_cq_ex *x = ibv_create_cq_ex(c, &attr);

		CHECK(x);
		q = ibv_cq_ex_to_cq(x);
	} else {
		q = ibv_create_cq(c, entries, NULL, ch, 0);
	}
	CHECK(q);
	printf("cq %p %p %d %d %d\n", q, c, q->cqe, ch ? ch->fd : -1, ex);
	return q;
}

static struct ibv_qp *make_qp(struct ibv_context *c, struct ibv_pd *p, struct ibv_cq *q, struct ibv_srq *srq,
			      enum ibv_qp_type type, int sig_all, int ex, int tell)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = q, .recv_cq = q, .srq = srq, .qp_type = type, .sq_sig_all = sig_all,
		.cap = { .max_send_wr = 64, .max_recv_wr = srq ? 0 : 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = p,
	};
	struct ibv_qp *qp;

	if (ex) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | (type == IBV_QPT_RC ? IBV_QP_EX_WITH_RDMA_WRITE : 0);
	}
	qp = ibv_create_qp_ex(c, &attr);
	CHECK(qp);
	if (tell)
		printf("qp %p %p %u %d %d %d\n", qp, c, qp->qp_num, qp->qp_type, ex, sig_all);
	return qp;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE };

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .port_num = 1 } };

	CHECK(!ibv_query_port(qp->context, 1, &port));
	a.ah_attr.dlid = port.lid;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void reap(int n)
{
	struct ibv_wc wc;

	while (n > 0) {
		int got = ibv_poll_cq(cq, 1, &wc);

		CHECK(got >= 0);
		if (got && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		n -= got;
	}
}

static void post(int n)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 64, mr->lkey };
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qps[1]);

	for (int i = 0; i < n; i++) {
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)buffer + 1024;
		wr.wr.rdma.rkey = mr->rkey;
		CHECK(!ibv_post_send(qps[0], &wr, &bad));
		reap(1);
	}
	for (int i = 0; i < n; i++) {
		ibv_wr_start(x);
		x->wr_id = i;
		x->wr_flags = i == n - 1 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)buffer + 2048);
		ibv_wr_set_sge(x, mr->lkey, (uintptr_t)buffer, 64);
		CHECK(!ibv_wr_complete(x));
	}
	reap(1);
}

/* Memory that nobody has touched, and memory that a userfaultfd watches. */
static void traps(void)
{
	size_t size = 32 << 20;
	int fd = syscall(SYS_userfaultfd, 0);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	printf("untouched %p %zu\n", p, size);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && fd >= 0 && !ioctl(fd, UFFDIO_API, &api));
	reg.range.start = (uintptr_t)p;
	reg.range.len = size;
	memset(p, 1, 4096);
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &reg));
	printf("watched %p %zu\n", p, size);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_pd *pd2;
	struct ibv_srq *srq;
	struct ibv_cq *other;
	char line[64];
	int n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(list && list[0]);
	CHECK((ctx = ibv_open_device(list[0])) && (second = ibv_open_device(list[0])));
	printf("context %p %s\ncontext %p %s\n", ctx, ibv_get_device_name(list[0]), second,
	       ibv_get_device_name(list[0]));
	CHECK((pd = ibv_alloc_pd(ctx)) && (pd2 = ibv_alloc_pd(second)));
	CHECK(channel = ibv_create_comp_channel(ctx));
	CHECK(srq = ibv_create_srq(pd, &srq_attr));
	CHECK(mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	cq = make_cq(ctx, 63, NULL, 0);
	make_cq(ctx, 127, channel, 0);
	make_cq(ctx, 15, channel, 1);
	other = make_cq(second, 31, NULL, 0);
	for (n = 0; n < 16; n++)
		gone[n] = make_qp(ctx, pd, cq, NULL, IBV_QPT_RC, 0, n & 1, 0);
	qps[0] = make_qp(ctx, pd, cq, NULL, IBV_QPT_RC, 1, 0, 1);
	qps[1] = make_qp(ctx, pd, cq, NULL, IBV_QPT_RC, 0, 1, 1);
	qps[2] = make_qp(ctx, pd, cq, NULL, IBV_QPT_UD, 0, 1, 1);
	qps[3] = make_qp(ctx, pd, cq, srq, IBV_QPT_RC, 0, 0, 1);
	qps[4] = make_qp(second, pd2, other, NULL, IBV_QPT_RC, 0, 1, 1);
	for (n = 0; n < 16; n++)
		CHECK(!ibv_destroy_qp(gone[n]));
	traps();
	puts("done");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "post %d", &n) == 1) {
			post(n);
		} else if (!strcmp(line, "connect\n")) {
			to_init(qps[0]);
			to_init(qps[1]);
			to_rts(qps[0], qps[1]->qp_num);
			to_rts(qps[1], qps[0]->qp_num);
		} else if (!strcmp(line, "late\n")) {
			other = make_cq(ctx, 255, NULL, 1);
			qps[5] = make_qp(ctx, pd, other, NULL, IBV_QPT_RC, 0, 1, 1);
		} else if (!strcmp(line, "modify\n")) {
			to_init(qps[5]);
			to_rts(qps[5], qps[5]->qp_num);
		} else if (!strcmp(line, "close\n")) {
			CHECK(!ibv_destroy_qp(qps[4]) && !ibv_dealloc_pd(pd2) && !ibv_close_device(second));
		}
		puts("done");
	}
	return 0;
}
