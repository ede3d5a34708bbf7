// Package pollpath finds, in the machine code of a poll_cq function, the
// instructions that run once for every completion that is consumed and never
// when the queue is found empty. A probe there costs nothing on the empty
// polls of which a busy poller makes millions a second.
//
// The analysis is static and claims little: what it proposes is confirmed in
// the running process before it is believed.
//
// How: the function's graph is explored by recursive descent from its entry,
// so instruction boundaries are certain; a jump table counts for what a compare
// shows to be in it. The returned count is followed
// backwards from every ret through moves to the instructions that raise it.
// After each of these, the first emulated instruction that no path reaches
// without a raise is a site: on Debian's libmlx5 the jcc of the loop's latch. What
// an instruction does is told by a decoder for each machine (x86.go, arm64.go), all
// else knows none.
package pollpath
