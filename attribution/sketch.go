package attribution

import "math/bits"

// sketch counts durations in log-linear buckets: exact below 64 ns, then 64
// buckets for each power of two. A bucket [low, low+width) has width <= low/64,
// so its middle is within 1/128 of every value in it: 0.8 %, inside
// RelativeError.
//
// The buckets of a power of two are allocated when the first value falls there
// (512 bytes); after that adding allocates nothing. Sketches merge exactly, in
// any order.
type sketch struct {
	octaves [sketchOctaves]*[sketchBuckets]int64
}

const (
	sketchBits    = 6
	sketchBuckets = 1 << sketchBits
	sketchOctaves = 64 - sketchBits + 1 // the first holds the exact values
)

// sketchBucket is the place of v.
func sketchBucket(v uint64) (octave, bucket int) {
	if v < sketchBuckets {
		return 0, int(v)
	}
	shift := bits.Len64(v) - 1 - sketchBits
	return shift + 1, int(v>>shift) & (sketchBuckets - 1)
}

// sketchMiddle is the value that stands for a bucket.
func sketchMiddle(octave, bucket int) uint64 {
	if octave == 0 {
		return uint64(bucket)
	}
	shift := octave - 1
	return uint64(sketchBuckets+bucket)<<shift + uint64(1)<<shift/2
}

func (s *sketch) add(v uint64) {
	octave, bucket := sketchBucket(v)
	o := s.octaves[octave]
	if o == nil {
		o = new([sketchBuckets]int64)
		s.octaves[octave] = o
	}
	o[bucket]++
}

func (s *sketch) merge(other *sketch) {
	for i, from := range other.octaves {
		if from == nil {
			continue
		}
		if s.octaves[i] == nil {
			s.octaves[i] = new([sketchBuckets]int64)
		}
		for j, n := range from {
			s.octaves[i][j] += n
		}
	}
}

// rank gives the value with that many smaller or equal ones, counted from 1;
// 0 where the sketch holds fewer.
func (s *sketch) rank(rank int64) uint64 {
	for i, o := range s.octaves {
		if o == nil {
			continue
		}
		for j, n := range o {
			if rank -= n; rank <= 0 {
				return sketchMiddle(i, j)
			}
		}
	}
	return 0
}
