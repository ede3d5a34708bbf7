package tracer

import (
	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// As in bpf/event.h: the flags of WR records, which are cookies of the
// programs that several verbs share, and those of arms.
const (
	wrReceive  = 0x1
	wrSRQ      = 0x10
	armStepped = event.ArmStepped
)

// verbProbe is how one verb is observed: a program at its entry, one at its
// return, either or both. Two programs are a pair: neither is left alone.
type verbProbe struct {
	enter, exit string
	cookie      uint64
}

// verbProbes is the plan for the target's functions. The cookie tells a
// program that serves several verbs which one fired.
var verbProbes = map[locate.Verb]verbProbe{
	locate.PostSend:    {bpf.RdmaProgPostSendEnter, bpf.RdmaProgPostExit, 0},
	locate.PostRecv:    {bpf.RdmaProgPostRecvEnter, bpf.RdmaProgPostExit, wrReceive},
	locate.PostSRQRecv: {bpf.RdmaProgPostRecvEnter, bpf.RdmaProgPostExit, wrReceive | wrSRQ},
	locate.PollCQ:      {bpf.RdmaProgPollEnter, bpf.RdmaProgPollExit, 0},
	locate.ReqNotifyCQ: {bpf.RdmaProgReqNotifyEnter, "", 0},
	locate.StartPoll:   {bpf.RdmaProgPollExEnter, bpf.RdmaProgPollExExit, 0},
	locate.NextPoll:    {bpf.RdmaProgPollExEnter, bpf.RdmaProgPollExExit, 0},

	locate.WRStart:    {bpf.RdmaProgBuildStart, "", 0},
	locate.WRComplete: {bpf.RdmaProgBuildCompleteEnter, bpf.RdmaProgBuildCompleteExit, 0},
	locate.WRAbort:    {bpf.RdmaProgBuildAbort, "", 0},

	// Cookies: enum ibv_wr_opcode.
	locate.WRRDMAWrite:      {bpf.RdmaProgBuildWr, "", 0},
	locate.WRRDMAWriteImm:   {bpf.RdmaProgBuildWr, "", 1},
	locate.WRSend:           {bpf.RdmaProgBuildWr, "", 2},
	locate.WRSendImm:        {bpf.RdmaProgBuildWr, "", 3},
	locate.WRRDMARead:       {bpf.RdmaProgBuildWr, "", 4},
	locate.WRAtomicCmpSwp:   {bpf.RdmaProgBuildWr, "", 5},
	locate.WRAtomicFetchAdd: {bpf.RdmaProgBuildWr, "", 6},
	locate.WRLocalInv:       {bpf.RdmaProgBuildWr, "", 7},
	locate.WRBindMW:         {bpf.RdmaProgBuildWr, "", 8},
	locate.WRSendInv:        {bpf.RdmaProgBuildWr, "", 9},
	locate.WRSendTSO:        {bpf.RdmaProgBuildWr, "", 10},
	locate.WRFlush:          {bpf.RdmaProgBuildWr, "", 14},
	locate.WRAtomicWrite:    {bpf.RdmaProgBuildWr, "", 15},

	locate.WRSetSGE:            {bpf.RdmaProgBuildData, "", uint64(bpf.RdmaBuildSetterSET_SGE)},
	locate.WRSetSGEList:        {bpf.RdmaProgBuildData, "", uint64(bpf.RdmaBuildSetterSET_SGE_LIST)},
	locate.WRSetInlineData:     {bpf.RdmaProgBuildData, "", uint64(bpf.RdmaBuildSetterSET_INLINE)},
	locate.WRSetInlineDataList: {bpf.RdmaProgBuildData, "", uint64(bpf.RdmaBuildSetterSET_INLINE_LIST)},
	locate.WRSetUDAddr:         {bpf.RdmaProgBuildUdAddr, "", 0},

	locate.CmdCreateQP:    {bpf.RdmaProgCreateQpEnter, bpf.RdmaProgCreateQpExit, 0},
	locate.CmdCreateQPEx:  {bpf.RdmaProgCreateQpEnter, bpf.RdmaProgCreateQpExit, 0},
	locate.CmdCreateQPEx2: {bpf.RdmaProgCreateQpEnter, bpf.RdmaProgCreateQpExit, 0},
	locate.ModifyQP:       {bpf.RdmaProgModifyQpEnter, bpf.RdmaProgModifyQpExit, 0},
	locate.DestroyQP:      {bpf.RdmaProgDestroyQpEnter, "", 0},
	locate.CmdCreateCQ:    {bpf.RdmaProgCreateCqEnter, "", 0},
	locate.CmdCreateCQEx:  {bpf.RdmaProgCreateCqExEnter, "", 0},
	locate.InitCQ:         {bpf.RdmaProgInitCqEnter, "", 0},
	locate.DestroyCQ:      {bpf.RdmaProgDestroyCqEnter, "", 0},
	locate.OpenDevice:     {"", bpf.RdmaProgOpenDeviceExit, 0},
	locate.ImportDevice:   {"", bpf.RdmaProgOpenDeviceExit, 0},
	locate.CloseDevice:    {bpf.RdmaProgCloseDeviceEnter, "", 0},
}
