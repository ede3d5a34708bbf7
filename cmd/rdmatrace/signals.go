package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals turns SIGINT, SIGTERM and SIGHUP into the end of a context, once. The next
// SIGINT or SIGTERM ends the process at once, after unfinished files were removed. SIGHUP comes
// as a terminal goes, such as that of a connection that breaks: what was traced is still good.
// It comes twice then, from an interactive shell and, as that ends, from the kernel.
type signals struct {
	ch    chan os.Signal
	asked chan struct{} // closed by the first one
	first os.Signal     // once asked is closed
}

// watchSignals starts. patient: the first signal asks to stop; otherwise it ends the process.
// SIGPIPE becomes an error of the write, so that files are finished when only stdout has lost its reader.
func watchSignals(ctx context.Context, patient bool, abort func()) (context.Context, *signals) {
	ctx, cancel := context.WithCancel(ctx)
	s := &signals{ch: make(chan os.Signal, 4), asked: make(chan struct{})}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ignored := signal.Ignored(syscall.SIGINT) // as it is for what a script runs in the background
	signal.Notify(s.ch, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup makes it
		signal.Notify(s.ch, syscall.SIGHUP)
	}
	go func() {
		defer cancel()
		if patient {
			sig, ok := <-s.ch
			if !ok {
				return
			}
			s.first = sig
			close(s.asked)
			cancel()
		}
		for sig := range s.ch {
			if patient && sig == syscall.SIGHUP {
				continue
			}
			abort()
			die(sig, ignored && sig == os.Interrupt)
		}
	}()
	return ctx, s
}

// stop ends the watch; signals have their usual effect again.
func (s *signals) stop() {
	signal.Stop(s.ch)
	close(s.ch)
}

// die ends the process by a signal, so that whoever started it knows. One that was
// ignored as we were started would be so again: SIGTERM stands in for it.
func die(sig os.Signal, ignored bool) {
	if ignored {
		sig = syscall.SIGTERM
	}
	signal.Reset(sig)
	if n, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(syscall.Getpid(), n)
	}
	select {} // until the kernel delivers it
}
