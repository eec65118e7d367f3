package admin

import (
	"net/http"
	"testing"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// Whoever is refused is told so each time; the audit log is not filled by it.
func TestRefusedOften(t *testing.T) {
	t.Parallel()
	records := &recorder{}
	c := serveAll(t, records, func(Peer) Role { return Nobody })
	const often = 200
	for range often {
		if code := statusOf(t, c, "GET /v1/status"); code != http.StatusForbidden {
			t.Fatalf("status %d", code)
		}
	}
	if got := records.count(audit.AdminRefuse); got == 0 || got > often/2 {
		t.Errorf("%d of %d refusals are recorded, want some", got, often)
	}
}
