// Package export turns an attribution.Report into what people and other tools
// read: a text summary, JSON, a pprof profile, a flame graph and folded stacks.
//
// Every writer takes an io.Writer and a *attribution.Report and nothing else:
// no file, no clock, no terminal. The same Report gives the same bytes. Every
// string that came from the target or its kernel passes through clean.
package export
