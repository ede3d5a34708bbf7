package image

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rdmatrace/rdmatrace/event"
)

// Store holds the Spaces of all targets and the files mapped by them, each
// file once. It is safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	spaces map[uint32]*Space
	files  map[fileKey]*File // nil: looked at, and of no use
	notes  []string
}

// fileKey identifies a file as the maps show it; the vdso is {0, 0}.
type fileKey struct{ dev, inode uint64 }

// NewStore makes an empty Store.
func NewStore() *Store {
	return &Store{spaces: map[uint32]*Space{}, files: map[fileKey]*File{}}
}

// Snapshot reads the map of a process and opens the executable files it has
// not seen yet. Called again it renews the Space: what was unmapped meanwhile
// stays known where nothing new covers it, since older stacks need it, until
// the process executes another program. Files that cannot be opened are kept
// as mappings without contents, with a note. The error says that the map itself
// could not be read or is empty (the process has exited); what was known of the
// process stays, and its Space is returned with the error if there is one.
func (s *Store) Snapshot(pid uint32) (*Space, error) {
	maps, err := ReadMaps(pid)
	if err == nil && len(maps) == 0 {
		err = fmt.Errorf("read the memory map of process %d: it has none any more", pid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	space := s.spaces[pid]
	if err != nil {
		return space, err
	}
	var regions []Region
	for _, m := range maps {
		if m.Exec {
			regions = append(regions, Region{Mapping: m, File: s.file(pid, m)})
		}
	}
	if space == nil {
		space = &Space{PID: pid}
		s.spaces[pid] = space
	}
	space.renew(regions)
	return space, nil
}

// file returns the File behind a mapping, opening it the first time.
func (s *Store) file(pid uint32, m Mapping) *File {
	key := fileKey{m.Dev, m.Inode}
	if m.Inode == 0 {
		if m.Path != vdsoPath {
			return nil
		}
		key = fileKey{}
	}
	f, known := s.files[key]
	if known {
		return f
	}
	f, err := openFile(pid, m)
	if err != nil {
		s.note(m.Path, err)
	}
	// Without a file to hold it open the inode number may be given to another.
	if f != nil || !gone(err) {
		s.files[key] = f
	}
	return f
}

func openFile(pid uint32, m Mapping) (*File, error) {
	if m.Inode == 0 {
		return newVDSO(m.End - m.Start)
	}
	h, err := openMapped(pid, m)
	if err != nil {
		return nil, err
	}
	f, err := NewFile(h, m.Path)
	if err != nil {
		h.Close()
		return nil, err
	}
	f.Dev, f.Inode, f.closer, f.pid = m.Dev, m.Inode, h, pid
	return f, nil
}

// maxNotes bounds what a target with a thousand unreadable files may say.
const maxNotes = 16

// note keeps a sentence on a file whose functions cannot be named. That a
// mapped regular file is not ELF is no news: JIT compilers do it.
func (s *Store) note(path string, err error) {
	if len(s.notes) > maxNotes || notELF(err) {
		return
	}
	text := fmt.Sprintf("%s cannot be read, its functions have no names and stacks may end there: %v", path, err)
	if len(s.notes) == maxNotes {
		text = "more files cannot be read"
	}
	s.notes = append(s.notes, strings.ToValidUTF8(text, "\uFFFD"))
}

// Space is the process's as of its latest Snapshot; nil if there was none.
func (s *Store) Space(pid uint32) *Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spaces[pid]
}

// Mappings lists the executable mappings of files, for the Context: by
// process, then by address.
func (s *Store) Mappings() []event.Mapping {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []event.Mapping
	for pid, space := range s.spaces {
		for _, r := range space.Regions() {
			if r.Path == "" {
				continue
			}
			m := event.Mapping{
				PID: pid, Start: r.Start, End: r.End, Offset: r.Mapping.Offset,
				Path: strings.ToValidUTF8(r.Path, "\uFFFD"), Deleted: r.Deleted,
			}
			if r.File != nil {
				m.BuildID = r.File.BuildID
			}
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b event.Mapping) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start))
	})
	return out
}

// Notes are sentences on what could not be opened or read.
func (s *Store) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notes)
}

// Close closes the files.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, f := range s.files {
		if f != nil {
			errs = append(errs, f.close())
		}
	}
	s.files, s.spaces = map[fileKey]*File{}, map[uint32]*Space{}
	return errors.Join(errs...)
}
