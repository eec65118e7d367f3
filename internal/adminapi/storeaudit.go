package adminapi

import (
	"errors"
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
	if p.At != "" {
		e.Details["at"] = p.At
	}
	for _, s := range p.steps[:min(len(p.steps), maxWritten)] {
		if s.action != admin.Unchanged {
			e.Details[s.action] = strings.TrimPrefix(e.Details[s.action]+", "+s.Key.String(), ", ")
		}
	}
	if err != nil {
		e.Outcome = audit.Failed
		if errors.Is(err, admin.ErrInvalid) || errors.Is(err, admin.ErrConflict) || errors.Is(err, admin.ErrNotFound) {
			e.Outcome = audit.Refused
		}
		e.Reason += ": " + err.Error()
		if r, ok := errors.AsType[*admin.Refusal](err); ok && len(r.Problems) > 0 {
			e.Reason += ": " + r.Problems[0].String()
		}
	}
	a.Record(e)
}
