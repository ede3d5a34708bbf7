package main

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
)

// gated lets through a write for each token.
type gated struct {
	bytes.Buffer
	tokens chan error
}

func (g *gated) Write(p []byte) (int, error) {
	if err := <-g.tokens; err != nil {
		return 0, err
	}
	return g.Buffer.Write(p)
}

// Writes return while the file takes nothing, and come to it whole and in order.
func TestSpool(t *testing.T) {
	g := &gated{tokens: make(chan error)}
	s := newSpool(g, 10)
	buf := []byte("abc")
	for range 3 {
		if n, err := s.Write(buf); n != 3 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		for i := range buf {
			buf[i] += 3 // it was copied
		}
	}
	if s.stalled() != 0 {
		t.Errorf("waited %v below the limit", s.stalled())
	}
	var over sync.WaitGroup
	over.Go(func() {
		if _, err := s.Write([]byte("jkl")); err != nil {
			t.Error(err)
		}
	})
	g.tokens <- nil // what makes room
	over.Wait()
	close(g.tokens)
	if err := s.Close(); err != nil || g.String() != "abcdefghijkl" {
		t.Errorf("%q, %v", g.String(), err)
	}
}

// What is bigger than the limit passes all the same, alone.
func TestSpoolOfBigWrites(t *testing.T) {
	var out bytes.Buffer
	s := newSpool(&out, 4)
	for range 3 {
		if _, err := s.Write([]byte("0123456789")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil || out.Len() != 30 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}

// An error ends every wait, and is told by what is written next and by Close.
func TestSpoolOfAFullDisk(t *testing.T) {
	g := &gated{tokens: make(chan error)}
	s := newSpool(g, 4)
	failure := errors.New("no space")
	if _, err := s.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	var over sync.WaitGroup
	over.Go(func() {
		if _, err := s.Write([]byte("def")); err != failure {
			t.Errorf("got %v", err)
		}
	})
	g.tokens <- failure
	over.Wait()
	if _, err := io.WriteString(s, "ghi"); err != failure {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != failure {
		t.Errorf("got %v", err)
	}
}
