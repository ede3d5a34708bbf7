/* What the device is: context, device, port and GID queries. */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include "shim.h"

#define FW_VERSION ((20ull << 32) | (31ull << 16) | 2006)

int get_context(struct call *k)
{
	bool real = k->c->dev.dev.clock_real;
	struct mlx5_ib_alloc_ucontext_resp r = {
		.qp_tab_size = 1 << 18,
		.bf_reg_size = SM5_BF_REG_SIZE,
		.tot_bfregs = 0,        /* UAR pages are allocated one by one */
		.cache_line_size = 64,
		.max_sq_desc_sz = 1024,
		.max_rq_desc_sz = 512,
		.max_send_wqebb = 32768,
		.max_recv_wr = 32768,
		.max_srq_recv_wr = 32767,
		.num_ports = 1,
		.cqe_version = 1,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
		.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE |
				 MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
		/* The page cannot say how seconds << 32 | ns is converted. */
		.clock_info_versions = real ? 0 : 1 << MLX5_IB_CLOCK_INFO_V1,
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET,
		.response_length = sizeof(r),
	};
	uint32_t vectors = 2;
	uint64_t core = 0;

	out(k, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
	out(k, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &core, sizeof(core));
	out(k, UVERBS_ATTR_UHW_OUT, &r, sizeof(r));
	return 0;
}

static void fill_device(const struct sm5_ctx *c, struct ib_uverbs_query_device_resp *d)
{
	memset(d, 0, sizeof(*d));
	d->fw_ver = FW_VERSION;
	d->node_guid = d->sys_image_guid = htobe64(c->dev.dev.guid);
	d->max_mr_size = ~0ull;
	d->page_size_cap = SM5_PAGE_CAP;
	d->vendor_id = 0x02c9;
	d->vendor_part_id = SM5_DEVICE;
	d->max_qp = 131072;
	d->max_qp_wr = 32768;
	d->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD |
		IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_PORT_ACTIVE_EVENT;
	d->max_sge = 30;
	d->max_sge_rd = 30;
	d->max_cq = 1 << 20;
	d->max_cqe = (1 << 22) - 1;
	d->max_mr = 1 << 20;
	d->max_pd = 1 << 20;
	d->max_qp_rd_atom = 16;
	d->max_res_rd_atom = 1 << 21;
	d->max_qp_init_rd_atom = 16;
	d->atomic_cap = IBV_ATOMIC_HCA;
	d->max_ah = 1 << 20;
	d->max_srq = 1 << 16;
	d->max_srq_wr = 32767;
	d->max_srq_sge = 31;
	d->max_pkeys = 128;
	d->local_ca_ack_delay = 16;
	d->phys_port_cnt = 1;
}

int query_device(struct call *k)
{
	struct ib_uverbs_query_device_resp d;

	if (!attr(k, UVERBS_ATTR_CORE_OUT))     /* libibverbs probes with no buffer */
		return ENOSPC;
	fill_device(k->c, &d);
	out(k, UVERBS_ATTR_CORE_OUT, &d, sizeof(d));
	return 0;
}

int query_device_ex(struct call *k)
{
	struct ib_uverbs_ex_query_device_resp d = {};
	struct mlx5_ib_query_device_resp u = { .response_length = sizeof(u) };

	fill_device(k->c, &d.base);
	d.response_length = sizeof(d);
	d.timestamp_mask = 0x7fffffffffffffffull;
	d.hca_core_clock = k->c->dev.dev.clock_hz / 1000;
	d.device_cap_flags_ex = d.base.device_cap_flags;
	out(k, UVERBS_ATTR_CORE_OUT, &d, sizeof(d));
	out(k, UVERBS_ATTR_UHW_OUT, &u, sizeof(u));
	return 0;
}

int query_port(struct call *k)
{
	struct ib_uverbs_query_port_resp_ex e = {};
	struct ib_uverbs_query_port_resp *p = &e.legacy_resp;
	const struct sm5_ctx *c = k->c;

	if (in_u64(k, UVERBS_ATTR_QUERY_PORT_PORT_NUM) != 1)
		return EINVAL;
	p->port_cap_flags = SM5_PORT_CAP;
	p->max_msg_sz = 1u << 30;
	p->gid_tbl_len = 1;
	p->pkey_tbl_len = 1;
	p->state = IBV_PORT_ACTIVE;
	p->max_mtu = p->active_mtu = IBV_MTU_4096;
	p->max_vl_num = 4;
	p->active_width = 2;            /* 4x */
	p->active_speed = 32;           /* EDR: 4x = 100 Gb/s */
	p->phys_state = 5;              /* link up */
	if (c->dev.dev.eth) {
		p->link_layer = IBV_LINK_LAYER_ETHERNET;
	} else {
		p->lid = p->sm_lid = c->dev.dev.lid;
		p->link_layer = IBV_LINK_LAYER_INFINIBAND;
	}
	out(k, UVERBS_ATTR_QUERY_PORT_RESP, &e, sizeof(e));
	return 0;
}

static struct ib_uverbs_gid_entry the_gid(const struct sm5_ctx *c)
{
	struct ib_uverbs_gid_entry g = {
		.port_num = 1,
		.gid_type = c->dev.dev.eth ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB,
	};

	memcpy(g.gid, c->dev.dev.gid, 16);
	return g;
}

int query_gid_entry(struct call *k)
{
	struct ib_uverbs_gid_entry g = the_gid(k->c);

	if (in_u64(k, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX) != 0)
		return EINVAL;
	out(k, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &g, sizeof(g));
	return 0;
}

int query_gid_table(struct call *k)
{
	struct ib_uverbs_gid_entry g = the_gid(k->c);
	uint64_t n = 1;

	out(k, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, &g, sizeof(g));
	out(k, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &n, sizeof(n));
	return 0;
}
