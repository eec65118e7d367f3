package adminapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// audit records a write in the audit log and the program's log, and what it did to each object.
func (k *Store) audit(p *storePlan, changes int, err error) {
	e := audit.Event{Action: audit.ConfigWrite, Actor: p.who, Target: "store", Reason: p.what(), Details: p.details()}
	switch {
	case err != nil:
		e.Outcome, e.Reason = audit.Failed, p.what()+": "+err.Error()
		if errors.Is(err, admin.ErrInvalid) || errors.Is(err, admin.ErrConflict) || errors.Is(err, admin.ErrNotFound) {
			e.Outcome = audit.Refused
		}
		e.Details["problems"] = firstProblems(err)
		k.Log.Warn("configuration not written", "what", p.what(), "by", p.who, "error", err)
	case changes == 0:
		e.Reason += ": nothing to change"
		e.Details["revision"] = p.present
	default:
		e.Target = "store revision " + p.present
		e.Details["revision"] = p.present
		k.Log.Info("configuration written", "what", p.what(), "by", p.who, "revision", p.present, "objects", changes)
	}
	maps.DeleteFunc(e.Details, func(_, text string) bool { return text == "" })
	k.Record(e)
	if err == nil {
		k.auditObjects(p)
	}
}

// auditObjects records what a write did to each object: the first ones one by one, and one digest.
func (k *Store) auditObjects(p *storePlan) {
	steps := slices.DeleteFunc(slices.Clone(p.steps), func(s storeStep) bool { return s.action == admin.Unchanged })
	for _, s := range steps[:min(len(steps), maxWritten)] {
		get := s.get
		if s.have != nil && get != nil {
			c := *get
			c.Created = s.have.Created // the store keeps it
			get = &c
		}
		e := change(s.have, get)
		e.Actor, e.Details["revision"] = p.who, p.present
		k.Record(e)
	}
	if len(steps) > maxWritten {
		k.Record(audit.Event{Action: audit.ConfigWrite, Actor: p.who, Target: "store revision " + p.present,
			Reason: moreChanged(len(steps)),
			Details: digest(len(steps), func(yield func(config.Key, *config.Object) bool) {
				for _, s := range steps {
					if !yield(s.key, s.get) {
						return
					}
				}
			})})
	}
}

// details are how many objects a plan changes, and the first ones.
func (p *storePlan) details() map[string]string {
	names := map[string][]string{}
	for _, s := range p.steps {
		names[s.action] = append(names[s.action], s.key.String())
	}
	out := map[string]string{"at": p.At}
	for a, list := range names {
		out[a] = strconv.Itoa(len(list))
		if a != admin.Unchanged {
			out[a] += ": " + strings.Join(list[:min(len(list), maxWritten)], ", ")
		}
	}
	if p.Force {
		out["force"] = "true"
	}
	return out
}

// firstProblems are some of those that a write was refused for, in one text.
func firstProblems(err error) string {
	const some = 5
	r, ok := errors.AsType[*admin.Refusal](err)
	if !ok {
		return ""
	}
	var out []string
	for _, p := range r.Problems[:min(len(r.Problems), some)] {
		out = append(out, p.String())
	}
	for _, c := range r.Conflicts[:min(len(r.Conflicts), some)] {
		out = append(out, fmt.Sprintf("%s was changed at revision %s by %s", c.Ref, c.Revision, c.Who))
	}
	return strings.Join(out, "; ")
}
