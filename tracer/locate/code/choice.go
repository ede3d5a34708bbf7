package code

import (
	"fmt"
	"slices"
)

// maxChoice is how many constants a word may be one of before it is unknown.
const maxChoice = 8

// choices are the sets of constants that occur in a function, each once, so
// that values can be compared.
type choices struct {
	sets  [][]int64
	index map[string]int64
}

// Constants are the constants that v may be: one, a few, or none known.
func (f *Func) Constants(v Value) []int64 {
	switch v.Kind {
	case ValueConst:
		return []int64{v.Off}
	case ValueChoice:
		return f.choices.sets[v.Off]
	}
	return nil
}

// either is what is known of a word that is a or b.
func (f *Func) either(a, b Value) Value {
	if a == b {
		return a
	}
	ca, cb := f.Constants(a), f.Constants(b)
	if ca == nil || cb == nil {
		return Value{}
	}
	set := slices.Clone(ca)
	for _, c := range cb {
		if !slices.Contains(set, c) {
			set = append(set, c)
		}
	}
	if len(set) > maxChoice {
		return Value{}
	}
	slices.Sort(set)
	key := fmt.Sprint(set)
	i, ok := f.choices.index[key]
	if !ok {
		if f.choices.index == nil {
			f.choices.index = map[string]int64{}
		}
		i = int64(len(f.choices.sets))
		f.choices.sets = append(f.choices.sets, set)
		f.choices.index[key] = i
	}
	return Value{Kind: ValueChoice, Off: i}
}
