// Package outcome reads what a trace leaves, for tests that run rdmatrace as
// its users do: the report that --json prints, and the capture file.
package outcome
