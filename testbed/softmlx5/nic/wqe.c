/* Work queue entries as libmlx5 writes them. */
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include "opcode.h"
#include "wqe.h"

#define SEG 16                  /* bytes of a segment */

/* Copy an entry of N bytes, which may wrap at the end of the ring. */
static void linearize(const struct qp *q, unsigned slot, uint8_t *dst, size_t n)
{
	size_t at = (size_t)slot * WQE_BB, to_end = (size_t)q->sq_cnt * WQE_BB - at;

	if (n <= to_end) {
		memcpy(dst, q->sq + at, n);
		return;
	}
	memcpy(dst, q->sq + at, to_end);
	memcpy(dst + to_end, q->sq, n - to_end);
}

/* The address vector in front of an unreliable datagram. */
static unsigned decode_av(const uint8_t *p, struct wr *w)
{
	const struct mlx5_wqe_av *av = (const void *)p;
	uint32_t dqp = be32toh(av->dqp_dct);

	w->dqpn = dqp & 0xffffff;
	/* Without the bit it is the short form, of one segment. */
	return dqp & MLX5_EXTENDED_UD_AV ? sizeof(*av) : SEG;
}

/* The segments between the first and the data; returns their length. */
static unsigned decode_remote(const uint8_t *p, struct wr *w)
{
	const struct mlx5_wqe_raddr_seg *r = (const void *)p;
	const struct mlx5_wqe_atomic_seg *a = (const void *)(r + 1);

	switch (w->opcode) {
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND_INVAL:
	case MLX5_OPCODE_NOP:
		return 0;
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		w->swap_add = be64toh(a->swap_add);
		w->compare = be64toh(a->compare);
		/* fall through */
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
	case MLX5_OPCODE_RDMA_READ:
		w->raddr = be64toh(r->raddr);
		w->rkey = be32toh(r->rkey);
		return w->opcode >= MLX5_OPCODE_ATOMIC_CS ? sizeof(*r) + sizeof(*a) : sizeof(*r);
	default:
		fprintf(stderr, "softmlx5d: opcode %#x is not emulated\n", w->opcode);
		w->syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		return 0;
	}
}

/* One data segment, inline or a pointer; returns its length in the entry. */
static unsigned decode_data(const uint8_t *p, unsigned left, struct wr *w)
{
	const struct mlx5_wqe_data_seg *d = (const void *)p;
	struct seg *s = &w->seg[w->nseg++];
	uint32_t n = be32toh(d->byte_count);

	if (!(n & MLX5_INLINE_SEG)) {
		*s = (struct seg){ be64toh(d->addr), n, be32toh(d->lkey), false };
		w->bytes += n;
		return SEG;
	}
	n &= 0x3ff;
	if (n > left - 4)
		n = left - 4;
	*s = (struct seg){ w->inl_len, n, 0, true };
	memcpy(w->inl + w->inl_len, p + 4, n);
	w->inl_len += n;
	w->bytes += n;
	return (4 + n + SEG - 1) & -SEG;
}

unsigned wqe_decode(const struct qp *q, struct wr *w)
{
	uint8_t lin[WQE_MAX_SEG * SEG] __attribute__((aligned(8)));
	const struct mlx5_wqe_ctrl_seg *ctrl = (void *)lin;
	unsigned slot = q->sq_ci & (q->sq_cnt - 1), len, off = SEG;
	uint32_t w0, w1;

	linearize(q, slot, lin, SEG);
	w0 = be32toh(ctrl->opmod_idx_opcode);
	w1 = be32toh(ctrl->qpn_ds);
	len = (w1 & 0x3f) * SEG;
	if (!len || (w0 >> 8 & 0xffff) != q->sq_ci || w1 >> 8 != q->qpn) {
		fprintf(stderr, "softmlx5d: bad WQE on QP %u: %08x %08x, index %u\n",
			q->qpn, w0, w1, q->sq_ci);
		return 0;
	}
	linearize(q, slot, lin, len);
	w->idx = q->sq_ci;
	w->opcode = w0 & 0xff;
	w->signaled = ctrl->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE;
	w->solicited = ctrl->fm_ce_se & MLX5_WQE_CTRL_SOLICITED;
	w->imm = ctrl->imm;
	w->dqpn = q->attr.dest_qp_num;
	if (q->type == IBV_QPT_UD)
		off += decode_av(lin + off, w);
	off += decode_remote(lin + off, w);
	while (off < len)
		off += decode_data(lin + off, len - off, w);
	if (w->opcode == MLX5_OPCODE_ATOMIC_CS || w->opcode == MLX5_OPCODE_ATOMIC_FA)
		w->bytes = 8;
	return (len + WQE_BB - 1) / WQE_BB;
}
