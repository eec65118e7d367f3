package ca

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// A store that is restored to an older state while we run lets nobody in: what was revoked since
// stays in force, is written again, and is told of.
func TestRestoredWhileRunning(t *testing.T) {
	t.Parallel()
	s := record.NewMemory()
	var events []audit.Event
	l, err := keptLedger(t, s, t.TempDir(), &events)
	if err != nil {
		t.Fatal(err)
	}
	other := mustLedger(t, s, t.TempDir()) // another replica
	revokeNames(t, l, "a")
	snapshot, err := s.List(t.Context(), revocationTable)
	if err != nil {
		t.Fatal(err)
	}
	revokeNames(t, l, "b")
	wantRevoked(t, l, "a", "b")
	wantRevoked(t, other, "a", "b")
	now, err := s.List(t.Context(), revocationTable)
	if err != nil {
		t.Fatal(err)
	}
	var writes []record.Write
	for _, r := range now {
		writes = append(writes, record.Write{Key: r.Key, Version: record.Any})
	}
	if err := s.Commit(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	for _, r := range snapshot {
		if err := s.Commit(t.Context(), record.Write{Key: r.Key, Value: r.Value, Version: record.Any}); err != nil {
			t.Fatal(err)
		}
	}
	wantRevoked(t, l, "a", "b")
	wantRevoked(t, other, "a", "b")
	if n := l.Unkept(); n != 1 {
		t.Errorf("%d are not kept, want 1", n)
	}
	for _, x := range []*Ledger{l, other} {
		if !x.keep(t.Context()) {
			t.Error("it cannot be kept")
		}
		wantRevoked(t, x, "a", "b")
	}
	wantRevoked(t, mustLedger(t, s, t.TempDir()), "a", "b") // of the records alone
	if p := strings.Join(l.Problems(), " "); !strings.Contains(p, "older than the copy of the revocations") {
		t.Errorf("problems: %q", p)
	}
	told := 0
	for _, e := range events {
		if e.Action == audit.WorkloadRevoke && strings.Contains(e.Reason, "the store was restored") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("audited %d times", told)
	}
	if err := l.Restore(t.Context(), RevokeRequest{Kind: RevokeIdentity, Name: "spiffe://cluster.local/ns/shop/sa/b",
		By: "tester", Reason: "found"}); err != nil {
		t.Fatal(err)
	}
	wantRevoked(t, l, "a")
	wantRevoked(t, other, "a")
}
