package adminapi

import (
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// auditWrite records a write in the audit log, with the names of the first objects. What becomes
// active by it is recorded by ConfigAudit.
func (a *API) auditWrite(p *storePlan, changes int, err error) {
	e := audit.Event{Action: audit.ConfigWrite, Actor: p.who, Target: "store revision " + p.revision, Reason: p.what(),
		Details: map[string]string{"changes": strconv.Itoa(changes)}}
	for _, s := range p.steps[:min(len(p.steps), maxWritten)] {
		if s.action != admin.Unchanged {
			e.Details[s.action] = strings.TrimPrefix(e.Details[s.action]+", "+s.Key.String(), ", ")
		}
	}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, p.what()+": "+err.Error()
	}
	a.Record(e)
}
