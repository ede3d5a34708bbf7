// Package image holds what the targets have mapped: their memory maps and the
// executable files behind them, kept open so that stacks can be unwound and
// addresses named after the target has gone.
//
// A file is a device and inode, never a path: it is opened through
// /proc/PID/map_files, else through /proc/PID/root, so containers, overlays
// and deleted libraries are seen as the target sees them.
package image
