package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// outputs are the files of one run. They are opened before tracing begins, so
// that a path which cannot be written is known at once, and get their names
// when they are whole.
type outputs struct {
	stdout io.Writer
	mu     sync.Mutex // abort comes from the signal handler
	files  map[string]*output
	over   bool
	input  os.FileInfo // of what is read, which may not be replaced; nil: nothing, or not a file
}

// output is one file: written under a temporary name beside its own, or
// straight to where there is nothing to replace (a terminal, a pipe, /dev/null).
type output struct {
	io.Writer
	flag, path string   // as given
	file       *os.File // nil: stdout
	temporary  string   // its name until it is whole; empty: written straight
	target     string   // what it is renamed to
}

func newOutputs(stdout io.Writer) *outputs {
	return &outputs{stdout: stdout, files: map[string]*output{}}
}

// keep the file that in reads from being replaced.
func (o *outputs) keep(in io.Reader) {
	f, ok := in.(*os.File)
	if !ok {
		return
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		o.input = info
	}
}

// open opens the files of flags, but makes those that are to be replaced beside
// them. Signals are watched by then: there is no
// moment at which one could leave a file behind.
func (o *outputs) open(flags []fileFlag) error {
	for _, f := range flags {
		out, err := openOutput(f, o.stdout) // may wait for the reader of a pipe
		if err == nil {
			err = o.take(out)
		}
		if err != nil {
			return (&output{flag: f.name, path: f.path}).failed(err)
		}
	}
	return nil
}

// take makes a file one of ours: from when it exists a signal removes it.
func (o *outputs) take(out *output) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		if err != nil {
			out.remove()
		}
	}()
	if o.over {
		return errors.New("stopped by a signal")
	}
	for _, other := range o.files {
		if out.target != "" && out.target == other.target {
			return fmt.Errorf("%s is the same file", other.flag)
		}
	}
	if info, err := os.Stat(out.target); err == nil && o.input != nil && os.SameFile(info, o.input) {
		return errors.New("it is the file to be reported")
	}
	if out.target != "" {
		if out.file, err = createBeside(out.target); err != nil {
			return err
		}
		out.Writer, out.temporary = out.file, out.file.Name()
	}
	o.files[out.flag] = out
	return nil
}

// reason strips an error of the path it repeats, which may be a temporary one.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return e.Err
	}
	return err
}

// openOutput opens a file that is written straight, and finds the target of another.
func openOutput(f fileFlag, stdout io.Writer) (*output, error) {
	out := &output{flag: f.name, path: f.path}
	if f.path == "-" {
		if isTerminal(stdout) && f.name != "--folded" {
			return nil, errors.New("stdout is a terminal")
		}
		out.Writer = stdout
		return out, nil
	}
	target, err := resolve(f.path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(f.path)
	switch {
	case err == nil && info.IsDir():
		return nil, errors.New("is a directory")
	case err == nil && (target == "" || !info.Mode().IsRegular()):
		out.file, err = os.OpenFile(f.path, os.O_WRONLY, 0)
		out.Writer = out.file
		return out, err
	case err == nil:
		// A file that may not be written may not be replaced either.
		probe, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		if err := probe.Close(); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	out.target = target
	return out, nil
}

// resolve gives the place of a file behind symbolic links: they stay, what they
// lead to is replaced, or made where it is missing. It is empty for what has no
// name, such as the deleted file that a link of /proc leads to.
func resolve(path string) (string, error) {
	_, err := os.Stat(path)
	if err == nil {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", nil
		}
		return filepath.Abs(target)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for range 40 { // as many as the kernel follows (MAXSYMLINKS of its namei.h)
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		to, err := os.Readlink(path)
		if err != nil {
			return filepath.Abs(path) // no link any more
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", syscall.ELOOP
}

// createBeside makes a new file in target's directory, where a rename is atomic.
func createBeside(target string) (*os.File, error) {
	for {
		f, err := os.OpenFile(fmt.Sprintf("%s.%d.tmp", target, rand.Uint32()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// usesStdout: one of the files is stdout.
func (o *outputs) usesStdout() bool {
	for _, out := range o.files {
		if out.path == "-" {
			return true
		}
	}
	return false
}

// get returns the file of a flag, nil if it is not wanted.
func (o *outputs) get(flag string) *output { return o.files[flag] }

// finish gives a file its content and its name, or removes it. A file that is not wanted is none.
func (o *outputs) finish(flag string, write func(io.Writer) error) error {
	out := o.files[flag]
	if out == nil {
		return nil
	}
	err := write(out)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return nil // a signal has removed it; the process is about to end
	}
	delete(o.files, flag)
	if err == nil {
		err = out.commit()
	}
	if err != nil {
		out.remove()
		return out.failed(err)
	}
	return nil
}

// failed says which file an error is of.
func (out *output) failed(err error) error {
	if out.path == "-" && errors.Is(err, syscall.EPIPE) {
		return errGone
	}
	return fmt.Errorf("%s: cannot write %s: %w", out.flag, out.path, reason(err))
}

func (out *output) commit() error {
	if out.file == nil {
		return nil
	}
	if err := out.file.Close(); err != nil {
		return err
	}
	if out.temporary == "" {
		return nil
	}
	if err := os.Rename(out.temporary, out.target); err != nil {
		return err
	}
	out.temporary = ""
	return nil
}

// remove takes a file away that did not get its name. There is nobody left to
// tell if that fails, and the name says what it is.
func (out *output) remove() {
	if out.file != nil {
		_ = out.file.Close()
	}
	if out.temporary != "" {
		_ = os.Remove(out.temporary)
	}
}

// abort removes every file that is not finished.
func (o *outputs) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	for _, out := range o.files {
		out.remove()
	}
}
