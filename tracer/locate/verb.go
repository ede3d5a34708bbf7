package locate

// Verb names what a function does. Its String is the word used in reports.
type Verb uint8

// The functions behind the inlines, then those libibverbs exports.
const (
	VerbNone Verb = iota

	// Slots of ibv_context.ops.
	PostSend    // int (ibv_qp *, ibv_send_wr *, ibv_send_wr **bad)
	PostRecv    // int (ibv_qp *, ibv_recv_wr *, ibv_recv_wr **bad)
	PostSRQRecv // int (ibv_srq *, ibv_recv_wr *, ibv_recv_wr **bad)
	PollCQ      // int (ibv_cq *, int n, ibv_wc *)
	ReqNotifyCQ // int (ibv_cq *, int solicited_only)

	// Members of ibv_qp_ex: the builders' brackets.
	WRStart    // void (ibv_qp_ex *)
	WRComplete // int (ibv_qp_ex *)
	WRAbort    // void (ibv_qp_ex *)

	// Members of ibv_qp_ex: each begins one WR. First argument: ibv_qp_ex *.
	WRAtomicCmpSwp
	WRAtomicFetchAdd
	WRBindMW
	WRLocalInv
	WRRDMARead     // (qp, u32 rkey, u64 remote_addr)
	WRRDMAWrite    // (qp, u32 rkey, u64 remote_addr)
	WRRDMAWriteImm // (qp, u32 rkey, u64 remote_addr, be32 imm)
	WRSend         // (qp)
	WRSendImm      // (qp, be32 imm)
	WRSendInv      // (qp, u32 rkey)
	WRSendTSO
	WRAtomicWrite // rdma-core 44
	WRFlush       // rdma-core 45

	// Members of ibv_qp_ex: setters of the WR begun last.
	WRSetUDAddr // (qp, ibv_ah *, u32 remote_qpn, u32 qkey)
	WRSetXRCSRQN
	WRSetInlineData     // (qp, void *addr, size_t length)
	WRSetInlineDataList // (qp, size_t n, const ibv_data_buf *)
	WRSetSGE            // (qp, u32 lkey, u64 addr, u32 length)
	WRSetSGEList        // (qp, size_t n, const ibv_sge *)

	// Members of ibv_cq_ex.
	StartPoll // int (ibv_cq_ex *, ibv_poll_cq_attr *)
	NextPoll  // int (ibv_cq_ex *)
	EndPoll   // void (ibv_cq_ex *)

	// Exported by libibverbs.
	OpenDevice    // verbs_open_device: ibv_context *(ibv_device *, void *)
	ImportDevice  // ibv_import_device
	CloseDevice   // ibv_close_device(ibv_context *)
	SetOps        // verbs_set_ops(verbs_context *, const verbs_context_ops *)
	CmdCreateQP   // ibv_cmd_create_qp(ibv_pd *, ibv_qp *, init_attr *, ...)
	CmdCreateQPEx // ibv_cmd_create_qp_ex(ibv_context *, verbs_qp *, init_attr_ex *, ...)
	CmdCreateQPEx2
	CmdOpenQP
	CreateQP  // ibv_create_qp(ibv_pd *, init_attr *)
	ModifyQP  // ibv_modify_qp(ibv_qp *, ibv_qp_attr *, int mask)
	DestroyQP // ibv_destroy_qp(ibv_qp *)
	QPToQPEx  // ibv_qp_to_qp_ex(ibv_qp *)
	InitCQ    // verbs_init_cq(ibv_cq *, ibv_context *, ibv_comp_channel *, void *)
	CmdCreateCQ
	CmdCreateCQEx
	DestroyCQ   // ibv_destroy_cq(ibv_cq *)
	GetCQEvent  // ibv_get_cq_event(channel, ibv_cq **, void **)
	AckCQEvents // ibv_ack_cq_events(ibv_cq *, unsigned)
	CreateSRQ
	DestroySRQ
	CreateCompChannel
	GetAsyncEvent

	// Exported by libmlx5: the way of programs that build WQEs themselves.
	MLX5InitObj  // mlx5dv_init_obj(mlx5dv_obj *, u64 type)
	MLX5CreateQP // mlx5dv_create_qp
	MLX5CreateCQ // mlx5dv_create_cq
	MLX5DevxObj  // mlx5dv_devx_obj_create
	MLX5DevxUAR  // mlx5dv_devx_alloc_uar
	verbs
)

// Verbs is one more than the largest Verb: the size of a table indexed by it.
const Verbs = int(verbs)

// String is the name used in reports: "post_send", "wr_rdma_write",
// "ibv_modify_qp".
func (v Verb) String() string {
	if int(v) < len(verbNames) && verbNames[v] != "" {
		return verbNames[v]
	}
	return "none"
}

var verbNames = [Verbs]string{
	PostSend: "post_send", PostRecv: "post_recv", PostSRQRecv: "post_srq_recv",
	PollCQ: "poll_cq", ReqNotifyCQ: "req_notify_cq",
	WRStart: "wr_start", WRComplete: "wr_complete", WRAbort: "wr_abort",
	WRAtomicCmpSwp: "wr_atomic_cmp_swp", WRAtomicFetchAdd: "wr_atomic_fetch_add",
	WRBindMW: "wr_bind_mw", WRLocalInv: "wr_local_inv",
	WRRDMARead: "wr_rdma_read", WRRDMAWrite: "wr_rdma_write", WRRDMAWriteImm: "wr_rdma_write_imm",
	WRSend: "wr_send", WRSendImm: "wr_send_imm", WRSendInv: "wr_send_inv", WRSendTSO: "wr_send_tso",
	WRAtomicWrite: "wr_atomic_write", WRFlush: "wr_flush",
	WRSetUDAddr: "wr_set_ud_addr", WRSetXRCSRQN: "wr_set_xrc_srqn",
	WRSetInlineData: "wr_set_inline_data", WRSetInlineDataList: "wr_set_inline_data_list",
	WRSetSGE: "wr_set_sge", WRSetSGEList: "wr_set_sge_list",
	StartPoll: "start_poll", NextPoll: "next_poll", EndPoll: "end_poll",
	OpenDevice: "verbs_open_device", ImportDevice: "ibv_import_device", CloseDevice: "ibv_close_device",
	SetOps: "verbs_set_ops", CmdCreateQP: "ibv_cmd_create_qp", CmdCreateQPEx: "ibv_cmd_create_qp_ex",
	CmdCreateQPEx2: "ibv_cmd_create_qp_ex2", CmdOpenQP: "ibv_cmd_open_qp",
	CreateQP: "ibv_create_qp", ModifyQP: "ibv_modify_qp", DestroyQP: "ibv_destroy_qp",
	QPToQPEx: "ibv_qp_to_qp_ex", InitCQ: "verbs_init_cq",
	CmdCreateCQ: "ibv_cmd_create_cq", CmdCreateCQEx: "ibv_cmd_create_cq_ex",
	DestroyCQ: "ibv_destroy_cq", GetCQEvent: "ibv_get_cq_event", AckCQEvents: "ibv_ack_cq_events",
	CreateSRQ: "ibv_create_srq", DestroySRQ: "ibv_destroy_srq",
	CreateCompChannel: "ibv_create_comp_channel", GetAsyncEvent: "ibv_get_async_event",
	MLX5InitObj: "mlx5dv_init_obj", MLX5CreateQP: "mlx5dv_create_qp", MLX5CreateCQ: "mlx5dv_create_cq",
	MLX5DevxObj: "mlx5dv_devx_obj_create", MLX5DevxUAR: "mlx5dv_devx_alloc_uar",
}
