package consul

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// The history is bounded by what it takes, in whole revisions, and never without the latest one,
// however large that is. Every replica remembers the same, also one that began with a snapshot.
func TestHistoryBytes(t *testing.T) {
	t.Parallel()
	const most, bytes = 1000, 100 << 10
	k := keeping{most: most, bytes: bytes}
	random := rand.New(rand.NewPCG(7, 7))
	a, late := (&state{}).begin("log", "entry"), (*state)(nil)
	full := false
	for i := range 400 {
		w := &objectsWrite{Who: "me", When: time.Unix(int64(i), 0).UTC()}
		for n := range 1 + random.IntN(5) {
			o := configtest.Object(fmt.Sprint("o", n), "a.test")
			size := random.IntN(4 << 10)
			if i == 200 || i == 201 {
				size = bytes
			}
			o.Annotations = map[string]string{"text": randomText(size)}
			kept, err := keep(o)
			if err != nil {
				t.Fatal(err)
			}
			w.Writes = append(w.Writes, objectWrite{nameOf(o.Key), kept})
		}
		c := &commit{Objects: w}
		a = a.apply(c, k)
		if late != nil {
			late = late.apply(c, k)
			equalStates(t, a, late)
		}
		size, revisions := 0, map[uint64]int{}
		for id, p := range a.history.All() {
			size += p.size()
			revisions[id.Revision]++
		}
		if size != a.remembered || size > bytes && len(revisions) > 1 {
			t.Fatalf("write %d: %d revisions of %d bytes are remembered, counted as %d", i, len(revisions), size,
				a.remembered)
		}
		if revisions[a.revision] != len(w.Writes) {
			t.Fatalf("write %d: of the latest revision %d writes are remembered, of %d", i, revisions[a.revision],
				len(w.Writes))
		}
		full = full || size > bytes*9/10
		if i == 250 {
			b, err := a.encode()
			if err != nil {
				t.Fatal(err)
			}
			if late, err = decodeState(b, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !full {
		t.Error("it never had as much as it may: more is forgotten than has to be")
	}
}

// What replicas that do nothing write all day, their signs of life, does not have the whole state
// written again and again: a snapshot is written for twice as many bytes of entries at least. A log
// of small entries ends in one all the same.
func TestIdleReplicasWriteNoSnapshots(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil)).open(t)
	put(t, s, "first", "1")
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := s.inLog.bytes
	<-s.turn
	if err := s.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "replica", Name: "one"},
		Value: make([]byte, 150), Version: record.Any}); err != nil {
		t.Fatal(err)
	}
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	sign := s.inLog.bytes - before
	<-s.turn
	const day = 3 * 24 * 3600 / 5 // of three replicas
	cfg := s.cfg
	for _, size := range []int{0, 1 << 20, 20 << 20, 200 << 20} {
		idle := &Store{cfg: cfg, compact: make(chan struct{}, 1)}
		idle.inLog.snapshot = size
		written := 0
		for range day {
			idle.inLog.entries++
			idle.inLog.bytes += sign
			if idle.wakeCompactor(); len(idle.compact) == 0 {
				continue
			}
			<-idle.compact
			written += size
			idle.inLog.entries, idle.inLog.bytes = 0, 0
		}
		if written > day*sign/2 {
			t.Errorf("a state of %d bytes: %d bytes of snapshots for %d bytes of signs of life a day", size, written,
				day*sign)
		}
	}
	idle := &Store{cfg: cfg, compact: make(chan struct{}, 1)}
	idle.inLog.snapshot, idle.inLog.entries = 200<<20, cfg.CompactEntries
	if idle.wakeCompactor(); len(idle.compact) == 0 {
		t.Errorf("%d entries have no snapshot written: who starts reads each", cfg.CompactEntries)
	}
}
