package consul

import (
	"context"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/registry"
)

// formats are those of the head and of the newest entry.
func (s site) formats(t *testing.T) [2]int {
	t.Helper()
	h, err := parseHead([]byte(s.kv(t, "GET", "head", "")))
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := parseEntry([]byte(s.kv(t, "GET", keyOfEntry(h.Sequence), "")))
	if err != nil {
		t.Fatal(err)
	}
	return [2]int{h.Format, a.Format}
}

// While replicas are brought to this release one after the other, those of format 1 read and write what is of that. What they would
// misread they are told of: by its entry, and by the head from then on, for the snapshots have it too.
func TestLowestFormat(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	hosts := []registry.Key{{Host: "one.test"}, {Host: "two.test"}}
	snapshot := func(ctx context.Context) error {
		_, err := a.snapshot(ctx)
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
		want [2]int
	}{
		{"a record", func(context.Context) error { put(t, a, "x", "1"); return nil }, [2]int{1, 1}},
		{"addresses", func(ctx context.Context) error { _, err := a.Allocate(ctx, hosts); return err }, [2]int{1, 1}},
		{"a snapshot", snapshot, [2]int{1, 1}},
		{"a host is idle", func(ctx context.Context) error { return a.Retire(ctx, hosts[:1], time.Unix(100, 0)) }, [2]int{2, 2}},
		{"a record after it", func(context.Context) error { put(t, a, "x", "2"); return nil }, [2]int{2, 1}},
		{"a snapshot that has it", snapshot, [2]int{2, 1}},
		{"its addresses go to another", func(ctx context.Context) error {
			_, err := a.Reuse(ctx, []registry.Key{{Host: "three.test"}}, map[registry.Key]time.Time{hosts[0]: time.Unix(100, 0)})
			return err
		}, [2]int{2, 2}},
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := s.formats(t); got != step.want {
			t.Errorf("after %s the head and the entry have formats %v, want %v", step.what, got, step.want)
		}
	}
	if got := valueOf(t, s.open(t), "x"); got != "2" {
		t.Errorf("a replica that starts reads %q", got)
	}
}
