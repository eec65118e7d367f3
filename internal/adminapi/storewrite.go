package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Apply implements admin.Stores.
func (k *Store) Apply(ctx context.Context, p admin.Pieces, o admin.StoreOptions, who string) (admin.Written,
	error) {
	plan := &storePlan{what: "apply", who: who, options: o}
	return k.write(ctx, plan, func() error { return k.planApply(ctx, p, plan) })
}

// Delete implements admin.Stores.
func (k *Store) Delete(ctx context.Context, p admin.Pieces, o admin.StoreOptions, who string) (admin.Written,
	error) {
	plan := &storePlan{what: "delete", who: who, options: o}
	return k.write(ctx, plan, func() error { return k.planDelete(ctx, p, plan) })
}

// Rollback implements admin.Stores.
func (k *Store) Rollback(ctx context.Context, r admin.RollbackRequest, o admin.StoreOptions,
	who string) (admin.Written, error) {
	plan := &storePlan{what: "rollback to " + r.Revision, who: who, options: o}
	return k.write(ctx, plan, func() error { return k.planRollback(ctx, r, plan) })
}

// write plans, and does what is planned. Every write is in the audit log, also one that was
// refused.
func (k *Store) write(ctx context.Context, p *storePlan, plan func() error) (admin.Written, error) {
	note := k.notes()                                          // of what is active before the write
	past, err := k.Store.History(ctx, config.Query{Limit: -1}) // before the objects are read
	if err == nil {
		err = plan()
	}
	if err == nil {
		err = k.hold(ctx, p)
	}
	out := admin.Written{Revision: cmp.Or(p.present, past.Latest), Preview: p.options.Preview, Warnings: p.notes.listed()}
	if p.options.Preview {
		if err == nil {
			out.Warnings = append(out.Warnings, k.outdated(past.Latest)...)
			out.Changes, err = k.shown(ctx, p, note, true)
		}
		return out, err
	}
	changes := p.changes()
	if err == nil && len(changes) > 0 {
		if out.Revision, err = k.Store.Apply(ctx, changes, p.author()); err != nil {
			err = k.raced(ctx, p, past.Latest, err)
		}
	}
	k.audit(p, out.Revision, len(changes), err)
	if err != nil {
		return admin.Written{}, err
	}
	out.Changes, err = k.shown(ctx, p, note, false)
	return out, err
}

// outdated says of a preview that it goes by an old revision, where the store cannot tell whether
// there is a newer one.
func (k *Store) outdated(revision string) []feed.Problem {
	s, ok := k.Store.(interface{ Standing() config.Outage })
	if !ok {
		return nil
	}
	now := s.Standing()
	if now.Error == "" {
		return nil
	}
	text := fmt.Sprintf("this goes by revision %s, the latest that this ashored knew on %s: there may be newer ones, for %s", revision, now.Since.UTC().Format(time.RFC3339), now.Error)
	return []feed.Problem{{Severity: feed.Warning, Source: k.Store.Name(), Field: "store", Text: text,
		Since: now.Since}}
}

// author is who writes, as the history tells it.
func (p *storePlan) author() string {
	if strings.HasPrefix(p.what, "rollback") {
		return p.who + ", " + p.what
	}
	return p.who
}

// shown is what a plan does, for operators. Differences take a while: they end with ctx.
func (k *Store) shown(ctx context.Context, p *storePlan, note func(config.Key, bool) string,
	differences bool) ([]admin.ObjectChange, error) {
	out := make([]admin.ObjectChange, len(p.steps))
	for i, s := range p.steps {
		out[i] = admin.ObjectChange{Ref: refOf(s.key), Action: s.action, Note: note(s.key, s.get == nil)}
		if s.have == nil && s.get == nil {
			out[i].Action = admin.Missing
		}
		if !differences || s.action == admin.Unchanged {
			continue
		}
		err := ctx.Err()
		if err == nil {
			out[i].Difference, err = objectDifference(s.have, s.get)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// objectDifference returns the change of an object as a unified diff. A nil object does not exist.
func objectDifference(have, get *config.Object) (string, error) {
	before, err := objectText(have, nil)
	if err != nil {
		return "", err
	}
	after, err := objectText(get, have)
	if err != nil {
		return "", err
	}
	names := [2]string{"/dev/null", "/dev/null"}
	for i, o := range []*config.Object{have, get} {
		if o == nil {
			continue
		}
		names[i] = o.Key.String()
		if i == 0 || o.Origin.File == "" {
			names[i] += " (store" + revisionText(o) + ")"
		} else {
			names[i] += fmt.Sprintf(" (%s:%d)", o.Origin.File, o.Origin.Line)
		}
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{FromFile: names[0], ToFile: names[1], Context: 3,
		A: slices.Collect(strings.Lines(before)), B: slices.Collect(strings.Lines(after))})
}

// revisionText is the revision of an object, for people.
func revisionText(o *config.Object) string {
	if o.Revision == "" || o.Revision == config.Absent {
		return ""
	}
	return ", revision " + o.Revision
}

// objectText is an object as YAML; it keeps the creation time of the one that it replaces.
func objectText(o, replaced *config.Object) (string, error) {
	if o == nil {
		return "", nil
	}
	c := *o
	if replaced != nil {
		c.Created = replaced.Created
	}
	text, err := config.Encode([]*config.Object{&c})
	return string(text), err
}
