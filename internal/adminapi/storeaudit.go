package adminapi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// audit takes one write to the audit log, and to the program's own.
func (k *Store) audit(p *storePlan, revision string, changes int, err error) {
	e := audit.Event{Action: audit.ConfigWrite, Actor: p.who, Target: "store", Reason: p.what, Details: p.details()}
	switch {
	case err != nil:
		e.Outcome, e.Reason = audit.Failed, p.what+": "+err.Error()
		if errors.Is(err, admin.ErrInvalid) || errors.Is(err, admin.ErrConflict) || errors.Is(err, admin.ErrNotFound) {
			e.Outcome = audit.Refused
		}
		e.Details["problems"] = firstProblems(err)
		k.Log.Warn("configuration not written", "what", p.what, "by", p.who, "error", err)
	case changes == 0:
		e.Reason += ": nothing to change"
		e.Details["revision"] = revision
	default:
		e.Target = "store revision " + revision
		e.Details["revision"] = revision
		k.Log.Info("configuration written", "what", p.what, "by", p.who, "revision", revision, "objects", changes)
	}
	maps.DeleteFunc(e.Details, func(_, text string) bool { return text == "" })
	k.Record(e)
	if err == nil {
		k.auditObjects(p, revision)
	}
}

// auditObjects takes what a write did to each object to the audit log, which outlasts the store's
// own memory. Of many the first are told, and one digest of all.
func (k *Store) auditObjects(p *storePlan, revision string) {
	steps := slices.DeleteFunc(slices.Clone(p.steps), func(s storeStep) bool { return s.action == admin.Unchanged })
	for _, s := range steps[:min(len(steps), maxWritten)] {
		e := s.event()
		e.Actor, e.Details["revision"] = p.who, revision
		k.Record(e)
	}
	if more := len(steps) - maxWritten; more > 0 {
		k.Record(audit.Event{Action: audit.ConfigWrite, Actor: p.who, Target: "store revision " + revision,
			Reason:  fmt.Sprintf("%d more objects were changed at once", more),
			Details: map[string]string{"objects": strconv.Itoa(len(steps)), "sha256": stepsDigest(steps)}})
	}
}

// stepsDigest is that of what steps left of all their objects.
func stepsDigest(steps []storeStep) string {
	h := sha256.New()
	for _, s := range steps {
		after := ""
		if s.get != nil {
			after = contentHash(s.get)
		}
		_, _ = fmt.Fprintf(h, "%s %s\n", s.key, after) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// event is what a step did, with what differs; see change.
func (s storeStep) event() audit.Event {
	if s.have == nil || s.get == nil {
		return change(s.have, s.get)
	}
	written := *s.get
	written.Created = s.have.Created // the store keeps it
	return change(s.have, &written)
}

// details are what a plan changes: how many objects, and which.
func (p *storePlan) details() map[string]string {
	count, names := map[string]int{}, map[string][]string{}
	for _, s := range p.steps {
		a := s.action
		count[a]++
		if a != admin.Unchanged && len(names[a]) < maxWritten {
			names[a] = append(names[a], s.key.String())
		}
	}
	out := map[string]string{}
	for a, n := range count {
		out[a] = strconv.Itoa(n)
		if len(names[a]) > 0 {
			out[a] += ": " + strings.Join(names[a], ", ")
		}
	}
	if p.options.Force {
		out["force"] = "true"
	}
	if p.options.At != "" {
		out["at"] = p.options.At
	}
	return out
}

// firstProblems are some of those that a write was refused for, in one text.
func firstProblems(err error) string {
	r, ok := errors.AsType[*admin.Refusal](err)
	if !ok {
		return ""
	}
	var out []string
	for _, p := range r.Problems {
		if len(out) < 5 {
			out = append(out, p.String())
		}
	}
	for _, c := range r.Conflicts {
		if len(out) < 5 {
			out = append(out, fmt.Sprintf("%s was changed at revision %s by %s", c.Ref, c.Revision, c.Who))
		}
	}
	return strings.Join(out, "; ")
}
