package adminapi

import (
	"errors"
	"maps"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// audit records a write in the audit log and the program's log. What becomes active by it is
// recorded by ConfigAudit.
func (k *Store) audit(p *storePlan, changes int, err error) {
	e := audit.Event{Action: audit.ConfigWrite, Actor: p.who, Target: "store", Reason: p.what(), Details: p.details()}
	switch {
	case err != nil:
		e.Outcome, e.Reason = audit.Failed, p.what()+": "+err.Error()
		if errors.Is(err, admin.ErrInvalid) || errors.Is(err, admin.ErrConflict) || errors.Is(err, admin.ErrNotFound) {
			e.Outcome = audit.Refused
		}
		if r, ok := errors.AsType[*admin.Refusal](err); ok && len(r.Problems) > 0 {
			e.Details["problem"] = r.Problems[0].String()
		}
		k.Log.Warn("configuration not written", "what", p.what(), "by", p.who, "error", err)
	case changes == 0:
		e.Reason += ": nothing to change"
		e.Details["revision"] = p.revision
	default:
		e.Target = "store revision " + p.revision
		e.Details["revision"] = p.revision
		k.Log.Info("configuration written", "what", p.what(), "by", p.who, "revision", p.revision, "objects", changes)
	}
	k.Record(e)
}

// details are how many objects a plan changes, and the first ones.
func (p *storePlan) details() map[string]string {
	names := map[string][]string{}
	for _, s := range p.steps {
		names[s.action] = append(names[s.action], s.Key.String())
	}
	out := map[string]string{"at": p.At}
	for a, list := range names {
		out[a] = strconv.Itoa(len(list))
		if a != admin.Unchanged {
			out[a] += ": " + strings.Join(list[:min(len(list), maxWritten)], ", ")
		}
	}
	maps.DeleteFunc(out, func(_, text string) bool { return text == "" })
	return out
}
