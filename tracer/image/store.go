package image

import (
	"errors"

	"github.com/rdmatrace/rdmatrace/event"
)

var errNotYet = errors.New("not there yet")

// Store holds the Spaces of all targets and the files mapped by them, each
// file once. It is safe for concurrent use.
type Store struct{}

// NewStore makes an empty Store.
func NewStore() *Store { return &Store{} }

// Snapshot reads the map of a process and opens the executable files it has
// not seen yet. Called again it renews the Space: what was unmapped meanwhile
// stays known where nothing new covers it, since older stacks need it. Files
// that cannot be opened are kept as mappings without contents, with a note.
// The error says that the map itself could not be read; what was known of the
// process stays.
func (s *Store) Snapshot(pid uint32) (*Space, error) { return nil, errNotYet }

// Space is the process's as of its latest Snapshot; nil if there was none.
func (s *Store) Space(pid uint32) *Space { return nil }

// Mappings lists the executable mappings of files, for the Context: by
// process, then by address.
func (s *Store) Mappings() []event.Mapping { return nil }

// Notes are sentences on what could not be opened or read.
func (s *Store) Notes() []string { return nil }

// Close closes the files.
func (s *Store) Close() error { return nil }

// Space is the address space of one process.
type Space struct{}
