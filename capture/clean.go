package capture

import (
	"math"
	"reflect"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// CleanContext returns a deep copy of ctx as a capture file gives it back:
// JSON holds neither bytes that are not UTF-8, which names of tasks and paths
// may contain, nor numbers that are not finite. Each run of bad bytes becomes
// U+FFFD, each such number 0. What is cleaned already is equal to its copy, so
// a report of cleaned context is the same live and from a file.
func CleanContext(ctx *event.Context) *event.Context { return clean(ctx) }

func clean[T any](v T) T {
	return cleanValue(reflect.ValueOf(v)).Interface().(T)
}

func cleanValue(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(cleanValue(v.Elem()))
			out.Set(p)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(cleanValue(v.Field(i)))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(cleanValue(v.Index(i)))
			}
		}
	case reflect.String:
		out.SetString(strings.ToValidUTF8(v.String(), "\uFFFD"))
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			out.SetFloat(0)
		}
	}
	return out
}
