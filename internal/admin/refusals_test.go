package admin

import (
	"net/http"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// Each user has so many refusals recorded at once and then one now and then, which tells of those that were not.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var r refusals
	now := time.Unix(1000, 0)
	recorded := 0
	for range 3 * refusalBurst {
		if ok, silent := r.take(1, now); ok {
			recorded++
			if silent != 0 {
				t.Errorf("%d are said to be missing", silent)
			}
		}
	}
	if recorded != refusalBurst {
		t.Errorf("%d were recorded, want %d", recorded, refusalBurst)
	}
	if ok, _ := r.take(2, now); !ok {
		t.Error("another user's is not recorded")
	}
	if ok, silent := r.take(1, now.Add(refusalPace)); !ok || silent != 2*refusalBurst {
		t.Errorf("later: %v, %d missing; want %d", ok, silent, 2*refusalBurst)
	}
	if ok, _ := r.take(1, now.Add(refusalPace)); ok {
		t.Error("two at a time after the burst")
	}
	for uid := range uint32(2 * maxRefused) {
		r.take(uid, now)
	}
	if len(r.users) > maxRefused {
		t.Errorf("%d users are remembered", len(r.users))
	}
}

// Whoever is refused is told so each time; the audit log is not filled by it.
func TestRefusedOften(t *testing.T) {
	t.Parallel()
	records := &recorder{}
	c := serveAll(t, records, func(Peer) Role { return Nobody })
	for range 2 * refusalBurst {
		if code := statusOf(t, c, "GET /v1/status"); code != http.StatusForbidden {
			t.Fatalf("status %d", code)
		}
	}
	if got := records.count(audit.AdminRefuse); got < refusalBurst || got > refusalBurst+2 {
		t.Errorf("%d refusals are recorded, want about %d", got, refusalBurst)
	}
}
