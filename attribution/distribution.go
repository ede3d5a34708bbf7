package attribution

import (
	"math"
	"math/big"
	"math/bits"
)

// durations accumulates a Distribution. Zeros may be left out and are then
// given to report: most causes are zero for most WRs.
type durations struct {
	count    int64
	total    uint64
	min, max uint64
	// The sum of squares in 128 bits: exact, so the standard deviation depends
	// neither on order nor on how a machine rounds.
	squareHigh, squareLow uint64
	values                sketch
}

func (d *durations) add(v uint64) {
	if d.count == 0 || v < d.min {
		d.min = v
	}
	d.max = max(d.max, v)
	d.count++
	d.total += v
	high, low := bits.Mul64(v, v)
	d.addSquare(high, low)
	d.values.add(v)
}

func (d *durations) addSquare(high, low uint64) {
	var carry uint64
	d.squareLow, carry = bits.Add64(d.squareLow, low, 0)
	d.squareHigh, _ = bits.Add64(d.squareHigh, high, carry)
}

func (d *durations) merge(other *durations) {
	if other.count == 0 {
		return
	}
	if d.count == 0 || other.min < d.min {
		d.min = other.min
	}
	d.max = max(d.max, other.max)
	d.count += other.count
	d.total += other.total
	d.addSquare(other.squareHigh, other.squareLow)
	d.values.merge(&other.values)
}

// report over n WRs: those that were not added count as zero.
func (d *durations) report(n int64) Distribution {
	if n == 0 {
		return Distribution{}
	}
	r := Distribution{
		Count:    n,
		TotalNS:  int64(d.total),
		MeanNS:   float64(d.total) / float64(n),
		StdDevNS: d.deviation(n),
		P50NS:    d.percentile(n, 500),
		P90NS:    d.percentile(n, 900),
		P99NS:    d.percentile(n, 990),
		P999NS:   d.percentile(n, 999),
		MaxNS:    int64(d.max),
	}
	if d.count == n {
		r.MinNS = int64(d.min)
	}
	return r
}

// rankOf is the nearest rank of a percentile given in thousandths, from 1.
func rankOf(n, permille int64) int64 { return max((n*permille+999)/1000, 1) }

func (d *durations) percentile(n, permille int64) int64 {
	rank := rankOf(n, permille) - (n - d.count)
	if rank <= 0 {
		return 0
	}
	// The middle of a bucket may lie beyond what was seen.
	return int64(min(max(d.values.rank(rank), d.min), d.max))
}

// deviation of the population: sqrt(n*sum(v^2) - sum(v)^2) / n, in integers up
// to the root.
func (d *durations) deviation(n int64) float64 {
	squares := new(big.Int).SetUint64(d.squareHigh)
	squares.Lsh(squares, 64).Add(squares, new(big.Int).SetUint64(d.squareLow))
	total := new(big.Int).SetUint64(d.total)
	variance := squares.Mul(squares, big.NewInt(n))
	variance.Sub(variance, total.Mul(total, total))
	f, _ := new(big.Float).SetInt(variance).Float64()
	return math.Sqrt(f) / float64(n)
}
