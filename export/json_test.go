package export

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// object of a report's JSON.
func object(t *testing.T, name string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(render(t, JSON, fixture(t, name))), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func at(t *testing.T, v any, path ...string) any {
	t.Helper()
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok || m[key] == nil {
			t.Fatalf("no %q of %q", key, path)
		}
		v = m[key]
	}
	return v
}

func TestJSONFields(t *testing.T) {
	m := object(t, "training")
	for _, key := range []string{"posted", "completed", "outstanding", "flushed", "lost", "excluded"} {
		at(t, m, "wrs", key)
	}
	distribution := []string{"count", "total_ns", "mean_ns", "stddev_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"}
	for _, key := range distribution {
		for _, path := range [][]string{{"latency"}, {"undecided"}, {"uncertain"}, {"classes", "software"}, {"classes", "interrupt"},
			{"classes", "scheduling"}, {"classes", "wire"}} {
			at(t, m, append(path, key)...)
		}
	}
	for _, path := range [][]string{{"version"}, {"target", "pid"}, {"window_ns"}, {"at_p50", "wire_ns"}, {"at_p99", "undecided_ns"},
		{"causes", "wire.base", "total_ns"}, {"causes", "wire.base", "count"}, {"causes", "wire.base", "who"}, {"incidents"},
		{"groups", "op"}, {"groups", "size"}, {"groups", "qp"}, {"groups", "peer"}, {"groups", "device"}, {"groups", "thread"}} {
		at(t, m, path...)
	}
}

// Classes and undecided add up to the latency, in the whole and in each group.
func TestJSONAddsUp(t *testing.T) {
	for _, name := range []string{"polling", "eventmode", "training"} {
		m := object(t, name)
		check := func(what string, v any) {
			var sum float64
			for _, class := range []string{"software", "interrupt", "scheduling", "wire"} {
				sum += at(t, v, "classes", class, "total_ns").(float64)
			}
			sum += at(t, v, "undecided", "total_ns").(float64)
			if total := at(t, v, "latency", "total_ns").(float64); sum != total {
				t.Errorf("%s %s: parts add up to %.0f ns, the latency to %.0f", name, what, sum, total)
			}
		}
		check("all", m)
		for by, list := range m["groups"].(map[string]any) {
			for _, g := range list.([]any) {
				check(by, g)
			}
		}
		var causes float64
		for _, c := range m["causes"].(map[string]any) {
			causes += at(t, c, "total_ns").(float64)
		}
		if total := at(t, m, "latency", "total_ns").(float64); causes != total {
			t.Errorf("%s: causes add up to %.0f ns, the latency to %.0f", name, causes, total)
		}
	}
}

// open objects have keys that are data, not fields.
var open = []string{"causes", "groups", "kinds", "exposed_ns", "done_sources", "demands", "losses"}

// Every field is explained in schema.md, and nothing is null where it says so.
func TestSchemaIsComplete(t *testing.T) {
	text, err := os.ReadFile("schema.md")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			isOpen := slices.Contains(open, path[strings.LastIndex(path, ".")+1:])
			for key, inner := range v {
				if !isOpen && !strings.Contains(string(text), "`"+key+"`") {
					t.Errorf("schema.md does not mention %s.%s", path, key)
				}
				walk(path+"."+key, inner)
			}
		case []any:
			for _, inner := range v {
				walk(path, inner)
			}
		case string:
			if cleanText(v) != v {
				t.Errorf("%s is not clean: %q", path, v)
			}
		case nil:
			if key := path[strings.LastIndex(path, ".")+1:]; !slices.Contains([]string{"target", "rank", "numa_node", "cpu",
				"counted_sent_bytes", "counted_received_bytes", "sampled", "vector", "irq"}, key) {
				t.Errorf("%s is null", path)
			}
		}
	}
	for _, f := range fixtures {
		walk("", any(object(t, f.name)))
	}
}
