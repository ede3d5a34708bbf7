package unwind

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var allowRule = cmp.AllowUnexported(rule{})

// Every call frame instruction, at the address after an advance of 4.
func TestProgram(t *testing.T) {
	base := &cie{codeAlign: 4, dataAlign: -8, returnReg: 16, initialize: []byte{cfaDef, 7, 8, 0x80 | 3, 5}}
	cases := []struct {
		name    string
		program []byte
		reg     int // -1: the CFA
		want    rule
	}{
		{"initial", nil, 3, rule{kind: ruleOffset, offset: -40}},
		{"offset", []byte{0x80 | 6, 2}, 6, rule{kind: ruleOffset, offset: -16}},
		{"offset_extended", []byte{cfaOffsetExt, 6, 2}, 6, rule{kind: ruleOffset, offset: -16}},
		{"offset_extended_sf", []byte{cfaOffsetExtSF, 6, 0x7e}, 6, rule{kind: ruleOffset, offset: 16}},
		{"GNU_negative_offset_extended", []byte{cfaGNUNegOffsetExt, 6, 2}, 6, rule{kind: ruleOffset, offset: 16}},
		{"val_offset", []byte{cfaValOffset, 6, 2}, 6, rule{kind: ruleValue, offset: -16}},
		{"val_offset_sf", []byte{cfaValOffsetSF, 6, 0x7f}, 6, rule{kind: ruleValue, offset: 8}},
		{"undefined", []byte{cfaUndefined, 3}, 3, rule{kind: ruleUndefined}},
		{"same_value", []byte{cfaSame, 3}, 3, rule{}},
		{"register", []byte{cfaRegister, 6, 9}, 6, rule{kind: ruleRegister, reg: 9}},
		{"register that is not followed", []byte{cfaRegister, 6, 99}, 6, rule{kind: ruleUndefined}},
		{"expression", []byte{cfaExpr, 6, 1, opDup}, 6, rule{kind: ruleExpr, expr: []byte{opDup}}},
		{"val_expression", []byte{cfaValExpr, 6, 1, opDup}, 6, rule{kind: ruleValueExpr, expr: []byte{opDup}}},
		{"restore", []byte{0x80 | 3, 9, 0xc0 | 3}, 3, rule{kind: ruleOffset, offset: -40}},
		{"restore_extended", []byte{cfaUndefined, 3, cfaRestoreExt, 3}, 3, rule{kind: ruleOffset, offset: -40}},
		{"remembered", []byte{cfaRemember, 0x80 | 3, 9, cfaRestoreState}, 3, rule{kind: ruleOffset, offset: -40}},
		{"remembered CFA", []byte{cfaRemember, cfaDefOffset, 99, cfaRestoreState}, -1, rule{kind: ruleValue, reg: 7, offset: 8}},
		{"def_cfa_register", []byte{cfaDefRegister, 6}, -1, rule{kind: ruleValue, reg: 6, offset: 8}},
		{"def_cfa_offset", []byte{cfaDefOffset, 0x90, 1}, -1, rule{kind: ruleValue, reg: 7, offset: 144}},
		{"def_cfa_offset_sf", []byte{cfaDefOffsetSF, 0x7d}, -1, rule{kind: ruleValue, reg: 7, offset: 24}},
		{"def_cfa_sf", []byte{cfaDefSF, 6, 0x7e}, -1, rule{kind: ruleValue, reg: 6, offset: 16}},
		{"def_cfa_expression", []byte{cfaDefExpr, 1, opNop}, -1, rule{kind: ruleValueExpr, expr: []byte{opNop}}},
		{"ignored", []byte{cfaNop, cfaNegateRA, cfaNegateRAPC, cfaGNUArgsSize, 16, cfaDefOffset, 24}, -1, rule{kind: ruleValue, reg: 7, offset: 24}},
		{"vector register", []byte{cfaOffsetExt, 70, 2, cfaRestoreExt, 70}, 3, rule{kind: ruleOffset, offset: -40}},
		{"advance to pc", []byte{0x41, cfaDefOffset, 24}, -1, rule{kind: ruleValue, reg: 7, offset: 24}},
		{"advance beyond pc", []byte{0x42, cfaDefOffset, 24}, -1, rule{kind: ruleValue, reg: 7, offset: 8}},
		{"advance1 beyond pc", []byte{cfaAdvance1, 2, cfaDefOffset, 24}, -1, rule{kind: ruleValue, reg: 7, offset: 8}},
		{"advance2 to pc", []byte{cfaAdvance2, 1, 0, cfaDefOffset, 24}, -1, rule{kind: ruleValue, reg: 7, offset: 24}},
		{"advance4 beyond pc", []byte{cfaAdvance4, 0, 0, 1, 0, cfaDefOffset, 24}, -1, rule{kind: ruleValue, reg: 7, offset: 8}},
	}
	for _, tc := range cases {
		f := &fde{begin: 0x1000, size: 0x100, cie: base, program: tc.program}
		r, err := f.rowAt(0x1004)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		got := r.cfa
		if tc.reg >= 0 {
			got = r.regs[tc.reg]
		}
		if diff := cmp.Diff(tc.want, got, allowRule); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestMalformedPrograms(t *testing.T) {
	many := make([]byte, maxRemember+1)
	for i := range many {
		many[i] = cfaRemember
	}
	for name, program := range map[string][]byte{
		"restore of nothing":        {cfaRestoreState},
		"too much remembered":       many,
		"operand missing":           {cfaDefOffset},
		"operand without end":       {cfaDefOffset, 0x80, 0x80},
		"expression cut short":      {cfaDefExpr, 200, 1},
		"register of an expression": {cfaDefExpr, 1, opNop, cfaDefRegister, 6},
		"CFA in a vector register":  {cfaDefRegister, 70},
		"unknown":                   {0x30},
		"set_loc":                   {cfaSetLoc, 0, 0, 0, 0},
		"advance cut short":         {cfaAdvance4, 1},
	} {
		f := &fde{begin: 0, size: 1 << 40, cie: &cie{codeAlign: 1, dataAlign: -8, returnReg: 16, initialize: []byte{cfaDef, 7, 8}}, program: program}
		if r, err := f.rowAt(1 << 39); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for name, c := range map[string]*cie{
		"no CFA":                      {codeAlign: 1},
		"return address out of range": {codeAlign: 1, returnReg: 99, initialize: []byte{cfaDef, 7, 8}},
	} {
		if r, err := (&fde{size: 8, cie: c}).rowAt(1); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestExpressions(t *testing.T) {
	var regs registers
	regs.set(7, 0x7008)
	regs.set(16, 0x4321)
	mem := &Snapshot{SP: 0x7000, Stack: stackOf(11, 22, 33)}
	for _, tc := range []struct {
		name string
		expr []byte
		want uint64
	}{
		{"literal", []byte{opLit31}, 31},
		{"constants", []byte{opConst1u, 0xff, opConst1u + 1, 0xff, opPlus}, 254},
		{"const2s", []byte{opConst1u + 3, 0xfe, 0xff}, ^uint64(1)},
		{"const8u", []byte{opConst1u + 6, 1, 2, 3, 4, 5, 6, 7, 8}, 0x0807060504030201},
		{"constu and consts", []byte{opConstu, 0x80, 1, opConsts, 0x7f, opMinus}, 129},
		{"register", []byte{opBreg0 + 7, 0x78}, 0x7000},
		{"bregx", []byte{opBregx, 16, 1}, 0x4322},
		{"deref", []byte{opBreg0 + 7, 0, opDeref}, 22},
		{"plus_uconst", []byte{opBreg0 + 7, 0, opPlusUconst, 8, opDeref}, 33},
		{"stack", []byte{opLit0 + 1, opLit0 + 2, opLit0 + 3, opRot, opSwap, opOver, opPick, 3, opDrop, opDup, opMinus}, 0},
		{"arithmetic", []byte{opLit0 + 6, opLit0 + 7, opMul, opNeg, opNot}, 41},
		{"bits", []byte{opLit0 + 12, opLit0 + 10, opXor, opLit0 + 1, opOr, opLit0 + 3, opAnd}, 3},
		{"shifts", []byte{opConst1u + 1, 0xf0, opLit0 + 2, opShra, opLit0 + 1, opShl, opConst1u, 60, opShr}, 15},
		{"wide shifts", []byte{opLit0 + 1, opConst1u, 200, opShl, opLit0 + 1, opConst1u, 200, opShr, opPlus}, 0},
		{"signed comparison", []byte{opConst1u + 1, 0xff, opLit0 + 1, opLt}, 1},
		{"comparisons", []byte{opLit0, opLit0, opEq, opLit0, opLit0, opNe, opPlus, opLit0 + 1, opLit0, opGt, opPlus,
			opLit0 + 1, opLit0, opLe, opPlus, opLit0 + 1, opLit0, opGe, opPlus}, 3},
		{"branch taken", []byte{opLit0 + 1, opBra, 1, 0, opLit0 + 5, opLit0 + 9}, 9},
		{"branch not taken", []byte{opLit0 + 4, opLit0, opBra, 1, 0, opNop, opNop}, 4},
		{"skip", []byte{opLit0 + 4, opSkip, 1, 0, opDrop}, 4},
		// What linkers write for .plt: 8 more from the 11th byte of an entry on.
		{"PLT", []byte{opBreg0 + 7, 8, opBreg0 + 16, 0, opLit0 + 15, opAnd, opLit0 + 11, opGe, opLit0 + 3, opShl, opPlus}, 0x7010},
	} {
		if got, err := eval(tc.expr, &regs, mem); err != nil || got != tc.want {
			t.Errorf("%s: %#x, %v; want %#x", tc.name, got, err, tc.want)
		}
	}
	for name, expr := range map[string][]byte{
		"empty":             {},
		"underflow":         {opPlus},
		"half underflow":    {opLit0, opPlus},
		"nothing to drop":   {opDrop},
		"nothing to swap":   {opLit0, opSwap},
		"nothing to rotate": {opLit0, opLit0, opRot},
		"pick too deep":     {opLit0, opPick, 1},
		"unknown register":  {opBreg0 + 1, 0},
		"high register":     {opBregx, 200, 1, 0},
		"outside the stack": {opLit0, opDeref},
		"partly outside":    {opBreg0 + 7, 9, opDeref},
		"endless":           {opSkip, 0xfd, 0xff},
		"out of range":      {opSkip, 0xff, 0x7f},
		"cut short":         {opConst1u + 6, 1},
		"unknown":           {0xff},
		"pushes for ever":   {opLit0, opSkip, 0xfc, 0xff},
	} {
		if got, err := eval(expr, &regs, mem); err == nil {
			t.Errorf("%s: %#x", name, got)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tc := range []struct {
		bytes []byte
		u     uint64
		s     int64
	}{
		{[]byte{0}, 0, 0}, {[]byte{0x7f}, 127, -1}, {[]byte{0x80, 1}, 128, 128}, {[]byte{0x80, 0x7f}, 16256, -128},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 1<<64 - 1, -1},
		{[]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 0, 0},
	} {
		if got := (&cursor{b: tc.bytes}).uleb(); got != tc.u {
			t.Errorf("%x: unsigned %d, want %d", tc.bytes, got, tc.u)
		}
		if got := (&cursor{b: tc.bytes}).sleb(); got != tc.s {
			t.Errorf("%x: signed %d, want %d", tc.bytes, got, tc.s)
		}
	}
	for _, tc := range []struct {
		enc   byte
		bytes []byte
		want  uint64
		ok    bool
	}{
		{encAbsolute, []byte{1, 0, 0, 0, 0, 0, 0, 0}, 1, true},
		{encPCRel | encS4, []byte{0xff, 0xff, 0xff, 0xff}, 0x0fff, true},
		{encDataRel | encS4, []byte{0xf0, 0xff, 0xff, 0xff}, 0x1ff0, true},
		{encPCRel | encU2, []byte{2, 0}, 0x1002, true},
		{encULEB, []byte{0x80, 1}, 128, true}, {encSLEB, []byte{0x7f}, 1<<64 - 1, true},
		{encS2, []byte{0xfe, 0xff}, 1<<64 - 2, true}, {encU4, []byte{1, 2, 0, 0}, 513, true},
		{encU8, []byte{1}, 0, false}, {0x05, []byte{1, 2, 3}, 0, false}, {0x50 | encU4, []byte{1, 2, 3, 4}, 0, false},
	} {
		got, ok := (&cursor{b: tc.bytes}).pointer(tc.enc, 0x1000, 0x2000)
		if ok != tc.ok || (ok && got != tc.want) {
			t.Errorf("encoding %#x of %x: %#x, %v; want %#x, %v", tc.enc, tc.bytes, got, ok, tc.want, tc.ok)
		}
	}
}
