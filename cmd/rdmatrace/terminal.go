package main

import (
	"io"
	"os"
	"strconv"

	"github.com/rdmatrace/rdmatrace/export"
	"golang.org/x/term"
)

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// textOptions suit w: colour and width are those of a terminal. A file or a pipe gets
// all that there is to be said; COLUMNS is the user's word on how wide that may be.
func textOptions(w io.Writer) export.TextOptions {
	var o export.TextOptions
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		o.Width = n
	}
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return o
	}
	o.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if o.Width > 0 {
		return o
	}
	o.Width = terminalWidth(f)
	return o
}

// terminalWidth is what the terminal w says.
func terminalWidth(w any) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return usualWidth
}

// usualWidth of a terminal that does not tell it.
const usualWidth = 80
