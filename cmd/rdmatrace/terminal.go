package main

import (
	"io"
	"os"

	"github.com/rdmatrace/rdmatrace/export"
	"golang.org/x/term"
)

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// textOptions suit w: colour and width are those of a terminal.
func textOptions(w io.Writer) export.TextOptions {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return export.TextOptions{}
	}
	o := export.TextOptions{Colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		o.Width = width
	}
	return o
}
