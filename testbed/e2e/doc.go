// Package e2e holds the tests that run rdmatrace on unmodified RDMA programs on
// the software device, and compare what it says with the device's truth log.
//
// A test starts a device of its own (startDevice), programs on it (pair, run),
// traces them (trace) and compares. Nothing waits for a time: a program runs
// until the test has seen what it wants and stops it.
package e2e
