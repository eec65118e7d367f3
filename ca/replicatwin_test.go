package ca

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// counted are records that count what is written to a replica's own one.
type counted struct {
	record.Store
	writes atomic.Int64
}

func (c *counted) Commit(ctx context.Context, writes ...record.Write) error {
	for _, w := range writes {
		if strings.HasPrefix(w.Name, replicaRecords) {
			c.writes.Add(1)
		}
	}
	return c.Store.Commit(ctx, writes...)
}

// twin is a house with a copy of another one's folder.
func (w *town) twin(of *house, name string) *house {
	w.t.Helper()
	h := w.another(name, "")
	if err := os.CopyFS(h.config.Dir, os.DirFS(of.config.Dir)); err != nil {
		w.t.Fatal(err)
	}
	files, err := os.ReadDir(h.config.Dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files { // a copy has other modes
		if err := os.Chmod(h.at(f.Name()), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return h
}

// Two replicas with one ID do not overrule one another without end, and an operator is told what to
// do, whether anybody tells who is alive or not, and whether they differ by their names or not.
// When the copy is gone the one that is left has its record.
func TestReplicaTwins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name string
		twin func() string
	}{
		"nobody tells": {name: "two's copy"},
		"alive":        {name: "two's copy", twin: func() string { return "the other" }},
		"same name":    {name: "two"},
		"both":         {name: "two", twin: func() string { return "the other" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, h, _ := settledTown(t)
			records := &counted{Store: w.first.records}
			other := w.twin(h, c.name)
			h.config.Records, other.config.Records = records, records
			h.config.ReplicaTwin, other.config.ReplicaTwin = c.twin, c.twin
			two, copied := h.move(), other.move()
			// each has its own key, as after a renewal
			for x, house := range map[*Manager]*house{two: h, copied: other} {
				house.later(nil, intermediateLife/2+time.Hour)
				x.own.replica.trouble = ""
			}
			before := records.writes.Load()
			for range 20 {
				h.later(two, time.Second)
				other.later(copied, time.Second)
			}
			// each asks, lists itself, and says that it is there
			if wrote := records.writes.Load() - before; wrote > 6 {
				t.Errorf("%d writes in 20 s, want 6 at most", wrote)
			}
			var told []string
			for _, m := range []*Manager{two, copied} {
				said := show(t, m).Problems
				told = append(told, said...)
				if c.twin != nil && !strings.Contains(strings.Join(said, "\n"),
					m.own.dir.at(replicaFile)+" is that of the other too") {
					t.Errorf("%s says %q, want the other one named", m.own.replica.name, said)
				}
			}
			if all := strings.Join(told, "\n"); !strings.Contains(all, replicaFile+" is that of ") ||
				!strings.Contains(all, "remove that file and start it again") {
				t.Errorf("problems %q", told)
			}
			two.own.replica.twin = nil // the copy is gone
			h.later(nil, time.Hour)
			w.first.later(nil, h.ahead(w.first))
			w.both(h, two, 0)
			if s := show(t, two); len(s.Problems) != 0 {
				t.Errorf("the one that is left has problems %q", s.Problems)
			}
			if got := states(t, w.m); len(got) != 1 || got["two"] == "" {
				t.Errorf("the first one knows of %v", got)
			}
		})
	}
}

// Two that run with one ID write no more often than each of them now and then.
func TestReplicaTwinsRun(t *testing.T) {
	t.Parallel()
	w, h, _ := settledTown(t)
	records := &counted{Store: w.first.records}
	other := w.twin(h, "two's copy")
	h.config.Records, other.config.Records = records, records
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 2)
	for _, x := range []*house{h, other} {
		m := x.move()
		go func() { done <- m.Run(ctx) }()
	}
	for range 2 {
		<-done
	}
	if wrote := records.writes.Load(); wrote > 4 {
		t.Errorf("%d writes, want 4 at most", wrote)
	}
}

// A replica that has another name since it was started again is not its own twin, and writes its
// record at once; who damages that again and again is not taken for a copy of it.
func TestReplicaNoTwin(t *testing.T) {
	t.Parallel()
	_, h, two := settledTown(t)
	h.later(two, 0)
	h.config.Replica = "two elsewhere"
	h.config.ReplicaAlive, h.config.ReplicaTwin = func(string) bool { return true }, func() string { return "" }
	m := h.move()
	h.later(m, 0)
	if got := m.own.replica.record; len(show(t, m).Problems) != 0 || got.Name != h.config.Replica {
		t.Errorf("it has another name: the record says %q, problems %q", got.Name, show(t, m).Problems)
	}
	for range 2 {
		h.later(m, 10*time.Second)
		key := record.Key{Table: table, Name: replicaRecords + m.ReplicaID()}
		if err := h.records.Commit(t.Context(), record.Write{Key: key, Value: []byte("damaged"),
			Version: record.Any}); err != nil {
			t.Fatal(err)
		}
	}
	h.later(m, 0)
	if got := show(t, m).Problems; len(got) != 1 || !strings.Contains(got[0], "was overwritten since") ||
		strings.Contains(got[0], "is that of") {
		t.Errorf("its record was damaged twice: problems %q", got)
	}
	h.later(m, rewriteGap)
	if got := show(t, m).Problems; len(got) != 0 {
		t.Errorf("a while later: problems %q", got)
	}
}

// Each of two with one ID says so as soon as it is known that the other one serves, though neither
// has anything to write.
func TestReplicaTwinsBothTell(t *testing.T) {
	t.Parallel()
	w, h, _ := settledTown(t)
	records := &counted{Store: w.first.records}
	other := w.twin(h, "two")
	serves := ""
	for _, x := range []*house{h, other} {
		x.config.Records, x.config.ReplicaTwin = records, func() string { return serves }
		m := x.move()
		x.later(m, 0)
		if got := show(t, m).Problems; len(got) != 0 {
			t.Errorf("by itself it has problems %q", got)
		}
		serves = "two at 10.0.0.2"
		if got := show(t, m).Problems; len(got) != 1 || !strings.Contains(got[0],
			x.at(replicaFile)+" is that of two at 10.0.0.2 too: ") ||
			!strings.Contains(got[0], "remove that file and start it again") {
			t.Errorf("beside the other one it has problems %q", got)
		}
		serves = ""
	}
	if wrote := records.writes.Load(); wrote != 0 {
		t.Errorf("%d writes, want none", wrote)
	}
}
