package locate

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
)

// Build says what code a library has: the SHA-256 of its file, or of its FileID where
// the file is larger than any library of RDMA. A build-id is what its linker says;
// where breakpoints go, code that only claims to be another's must not be taken for it.
type Build [sha256.Size]byte

// buildMost bytes are read of a file. Debian's largest provider has 0.6 MB, with debug
// sections some 3; what has a provider inside may have gigabytes.
const buildMost = 16 << 20

func newBuild(id FileID, file io.ReaderAt) (b Build) {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(file, 0, buildMost+1))
	if err != nil || n > buildMost {
		h.Reset()
		h.Write([]byte(id.BuildID))
		_ = binary.Write(h, binary.LittleEndian, [...]uint64{id.Dev, id.Ino}) // a hash takes all
	}
	h.Sum(b[:0])
	return b
}
