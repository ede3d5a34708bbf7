// Package attribution turns events into work requests, cuts the latency of
// each into classes and causes, and aggregates them into a Report.
//
// It is pure: no kernel, no clock, no I/O. The same events give the same
// Report whatever their order inside the watermark and whatever GOMAXPROCS.
package attribution
