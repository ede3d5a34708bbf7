/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The parts of libibverbs' public structures that the programs read in the
 * target's memory.  Their layout is ABI: equal from rdma-core 17 (ibv_qp_ex:
 * 24) on.  The only difference between x86-64 and arm64 is the size of
 * pthread_mutex_t, 40 and 48 bytes, which moves what lies behind one.
 */
#ifndef RDMATRACE_VERBS_H
#define RDMATRACE_VERBS_H

#if defined(__TARGET_ARCH_arm64)
#define VERBS_MUTEX_EXTRA 8
#else
#define VERBS_MUTEX_EXTRA 0
#endif

struct verbs_send_wr {
	__u64 wr_id;
	__u64 next;
	__u64 sg_list;
	__s32 num_sge;
	__u32 opcode;
	__u32 send_flags;
	__u32 imm_data;
	__u64 rdma_or_ah;	/* rdma.remote_addr, atomic.remote_addr, ud.ah */
	__u32 rkey_or_qpn;	/* rdma.rkey, ud.remote_qpn */
	__u32 remote_qkey;
};

struct verbs_recv_wr {
	__u64 wr_id;
	__u64 next;
	__u64 sg_list;
	__s32 num_sge;
	__u32 pad;
};

struct verbs_sge {
	__u64 addr;
	__u32 length;
	__u32 lkey;
};

struct verbs_data_buf {
	__u64 addr;
	__u64 length;
};

#define VERBS_WC_STATUS_MAX 63	/* enum ibv_wc_status; 23 is the highest of rdma-core 50 */
#define VERBS_WC_RECV 128	/* bit of enum ibv_wc_opcode: the receive side */

struct verbs_wc {
	__u64 wr_id;
	__u32 status;
	__u32 opcode;
	__u32 vendor_err;
	__u32 byte_len;
	__u32 imm_data;
	__u32 qp_num;
	__u32 src_qp;
	__u32 wc_flags;
	__u16 pkey_index;
	__u16 slid;
	__u8 sl;
	__u8 dlid_path_bits;
	__u8 pad[2];
};

/* struct ibv_qp up to its mutex. */
struct verbs_qp {
	__u64 context;
	__u64 qp_context;
	__u64 pd;
	__u64 send_cq;
	__u64 recv_cq;
	__u64 srq;
	__u32 handle;
	__u32 qp_num;
	__u32 state;
	__u32 qp_type;
};

/* struct ibv_cq up to its mutex. */
struct verbs_cq {
	__u64 context;
	__u64 channel;
	__u64 cq_context;
	__u32 handle;
	__s32 cqe;
};

/* struct ibv_qp_ex behind its ibv_qp: what the builders of a WR read. */
#define VERBS_QP_EX_WR (168 + VERBS_MUTEX_EXTRA)
struct verbs_qp_ex_wr {
	__u64 wr_id;
	__u32 wr_flags;
	__u32 pad;
};

/* struct ibv_cq_ex: the current completion. */
#define VERBS_CQ_EX_STATUS (132 + VERBS_MUTEX_EXTRA)
struct verbs_cq_ex_status {
	__u32 status;
	__u32 wr_id_low;	/* wr_id, at 136: read as two halves, the struct begins at 132 */
	__u32 wr_id_high;
};

static inline __u64 verbs_cq_ex_wr_id(const struct verbs_cq_ex_status *s)
{
	return s->wr_id_low | (__u64)s->wr_id_high << 32;
}

/* struct ibv_qp_init_attr; ibv_qp_init_attr_ex begins the same. */
struct verbs_qp_init_attr {
	__u64 qp_context;
	__u64 send_cq;
	__u64 recv_cq;
	__u64 srq;
	__u32 max_send_wr;
	__u32 max_recv_wr;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline_data;
	__u32 qp_type;
	__s32 sq_sig_all;
	__u32 pad;
};

struct verbs_qp_attr {
	__u32 qp_state;
	__u32 cur_qp_state;
	__u32 path_mtu;
	__u32 path_mig_state;
	__u32 qkey;
	__u32 rq_psn;
	__u32 sq_psn;
	__u32 dest_qp_num;
	__u32 qp_access_flags;
	__u32 cap[5];
	__u8 dgid[16];
	__u32 flow_label;
	__u8 sgid_index;
	__u8 hop_limit;
	__u8 traffic_class;
	__u8 pad0;
	__u16 dlid;
	__u8 sl;
	__u8 src_path_bits;
	__u8 static_rate;
	__u8 is_global;
	__u8 ah_port_num;
	__u8 pad1;
	__u8 alt_ah_attr[32];
	__u16 pkey_index;
	__u16 alt_pkey_index;
	__u8 en_sqd_async_notify;
	__u8 sq_draining;
	__u8 max_rd_atomic;
	__u8 max_dest_rd_atomic;
	__u8 min_rnr_timer;
	__u8 port_num;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
	__u8 pad2;
};

#define VERBS_CHANNEL_FD	8	/* in struct ibv_comp_channel */
#define VERBS_DEVICE_NAME	24	/* in struct ibv_device, 64 bytes */
#define VERBS_CQ_ATTR_VECTOR	24	/* comp_vector in struct ibv_cq_init_attr_ex */

#define VERBS_AT(type, member, offset) \
	_Static_assert(__builtin_offsetof(struct type, member) == (offset), #type "." #member)

VERBS_AT(verbs_send_wr, opcode, 28);
VERBS_AT(verbs_send_wr, rkey_or_qpn, 48);
VERBS_AT(verbs_sge, length, 8);
VERBS_AT(verbs_wc, qp_num, 28);
VERBS_AT(verbs_qp, qp_num, 52);
VERBS_AT(verbs_qp, qp_type, 60);
VERBS_AT(verbs_cq, cqe, 28);
VERBS_AT(verbs_qp_init_attr, qp_type, 52);
VERBS_AT(verbs_qp_init_attr, sq_sig_all, 56);
VERBS_AT(verbs_qp_attr, dest_qp_num, 28);
VERBS_AT(verbs_qp_attr, dgid, 56);
VERBS_AT(verbs_qp_attr, dlid, 80);
VERBS_AT(verbs_qp_attr, ah_port_num, 86);
VERBS_AT(verbs_qp_attr, max_rd_atomic, 126);
VERBS_AT(verbs_qp_attr, rnr_retry, 132);
_Static_assert(sizeof(struct verbs_wc) == 48, "verbs_wc");
_Static_assert(sizeof(struct verbs_sge) == 16, "verbs_sge");
_Static_assert(sizeof(struct verbs_recv_wr) == 32, "verbs_recv_wr");

/* enum ibv_qp_type, ibv_qp_attr_mask, ibv_wr_opcode, ibv_send_flags: never renumbered. */
enum { VERBS_QPT_RC = 2, VERBS_QPT_UC = 3, VERBS_QPT_UD = 4, VERBS_QPT_XRC_SEND = 9 };
enum {
	VERBS_ATTR_STATE = 1 << 0,
	VERBS_ATTR_PORT = 1 << 5,
	VERBS_ATTR_AV = 1 << 7,
	VERBS_ATTR_PATH_MTU = 1 << 8,
	VERBS_ATTR_TIMEOUT = 1 << 9,
	VERBS_ATTR_RETRY_CNT = 1 << 10,
	VERBS_ATTR_RNR_RETRY = 1 << 11,
	VERBS_ATTR_MAX_RD_ATOMIC = 1 << 13,
	VERBS_ATTR_MIN_RNR_TIMER = 1 << 15,
	VERBS_ATTR_DEST_QPN = 1 << 20,
};
enum { VERBS_WR_LOCAL_INV = 7, VERBS_WR_BIND_MW = 8, VERBS_WR_DRIVER1 = 11 };
enum { VERBS_SEND_FENCE = 1 << 0, VERBS_SEND_SIGNALED = 1 << 1, VERBS_SEND_SOLICITED = 1 << 2 };
enum { VERBS_QPS_RESET = 0, VERBS_QPS_RTS = 3 };

#endif
