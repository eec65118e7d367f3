package adminapi

import (
	"context"
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// storePlan is what a write to the store is about to do.
type storePlan struct {
	admin.StoreWrite
	who      string
	problems []config.Problem // of the files
	steps    []storeStep      // by key
	revision string           // the store's, before and then after the write
}

// storeStep is what is to become of one object.
type storeStep struct {
	config.Change
	have   *config.Object // as it is now; nil: none
	action string         // one of package admin
	note   string
}

// add adds a step that requires the object to be as it is now.
func (p *storePlan) add(key config.Key, have, get *config.Object) {
	s := storeStep{Change: config.Change{Key: key, Object: get, Revision: config.Absent}, have: have,
		action: actionOf(have, get)}
	if have != nil {
		s.Revision = have.Revision
	}
	switch {
	case have == nil && get == nil:
		s.action = admin.Missing
	case config.SameContent(have, get):
		s.action = admin.Unchanged
	}
	p.steps = append(p.steps, s)
}

// actionOf is what is done to an object that is written; nil is none.
func actionOf(before, after *config.Object) string {
	switch {
	case before == nil:
		return admin.Created
	case after == nil:
		return admin.Deleted
	}
	return admin.Changed
}

// what is the write in the audit log.
func (p *storePlan) what() string {
	if p.Action == admin.Rollback {
		return "rollback to " + p.Revision
	}
	return p.Action
}

// author is who writes, as the history shows it.
func (p *storePlan) author() string {
	if p.Action == admin.Rollback {
		return p.who + ", " + p.what()
	}
	return p.who
}

// changes are the writes of the steps.
func (p *storePlan) changes() (out []config.Change) {
	for _, s := range p.steps {
		if s.action != admin.Unchanged && s.action != admin.Missing {
			out = append(out, s.Change)
		}
	}
	return out
}

// refusal refuses a write whose files have errors; nil when there is none.
func refusal(problems []config.Problem) error {
	n := feed.Errors(problems)
	if n == 0 {
		return nil
	}
	text := "1 error: nothing was written"
	if n > 1 {
		text = fmt.Sprintf("%d errors: nothing was written", n)
	}
	return &admin.Refusal{Text: text, Is: admin.ErrInvalid, Problems: problems}
}

// Write writes to the store: all or nothing. Every write is in the audit log, also one that was
// refused. Errors: admin.ErrInvalid, admin.ErrConflict, admin.ErrNotFound; often an *admin.Refusal.
func (a *API) Write(ctx context.Context, w admin.StoreWrite) (admin.Written, error) {
	p := &storePlan{StoreWrite: w, who: admin.Actor(ctx)}
	var err error
	// A write of nothing fetches what other replicas wrote.
	if p.revision, err = a.Store.Apply(ctx, nil, p.author()); err == nil {
		err = a.plan(ctx, p)
	}
	changes := p.changes()
	if err == nil {
		err = mayWrite(ctx, changes)
	}
	if err == nil && len(changes) > 0 {
		var revision string
		if revision, err = a.Store.Apply(ctx, changes, p.author()); err == nil {
			p.revision = revision
		}
	}
	err = storeError(err)
	a.auditWrite(p, len(changes), err)
	if err != nil {
		return admin.Written{}, err
	}
	return written(ctx, p, false)
}

// mayWrite refuses changes of EnvoyFilters and TrafficExtensions to others than admins: a patch or a
// script can remove any protection.
func mayWrite(ctx context.Context, changes []config.Change) error {
	for _, c := range changes {
		changesProxies := c.Key.Kind == config.EnvoyFilter || c.Key.Kind == config.TrafficExtension
		if changesProxies && admin.RoleOf(ctx) < admin.Admin {
			return admin.NewError(admin.ErrForbidden, "nothing was written: %s needs the role admin, because it can "+
				"remove any protection (setting admin.roles)", c.Key)
		}
	}
	return nil
}

// Preview returns what Write would do, with the differences. It uses the objects that this replica
// knows. Errors: those of Write.
func (a *API) Preview(ctx context.Context, w admin.StoreWrite) (admin.Written, error) {
	p := &storePlan{StoreWrite: w}
	past, err := a.Store.History(ctx, config.Query{Limit: -1}) // before the objects are read
	p.revision = past.Latest
	if err == nil {
		err = a.plan(ctx, p)
	}
	if err != nil {
		return admin.Written{}, storeError(err)
	}
	return written(ctx, p, true)
}

// plan makes the steps of a write, and compares with the revision that the operator has seen.
func (a *API) plan(ctx context.Context, p *storePlan) error {
	list, err := a.Store.List(ctx, "", "")
	if err != nil {
		return err
	}
	have := map[config.Key]*config.Object{}
	for _, o := range list {
		have[o.Key] = o
	}
	switch p.Action {
	case admin.Apply:
		err = p.apply(have)
	case admin.Delete:
		err = a.planDelete(p, have)
	case admin.Rollback:
		err = a.planRollback(ctx, p, have)
	default:
		err = invalid("%q is not an action: want apply, delete or rollback", p.Action)
	}
	if err != nil {
		return err
	}
	slices.SortFunc(p.steps, func(a, b storeStep) int { return a.Key.Compare(b.Key) })
	for i := range p.steps {
		p.steps[i].note = a.elsewhere(p.steps[i].Key)
	}
	if p.At == "" {
		return nil
	}
	return a.unchangedSince(ctx, p)
}

// parse returns what the files of a write define.
func (p *storePlan) parse() (all filestore.Together) {
	for _, piece := range p.Pieces {
		if piece.Ref == nil {
			all.Add(filestore.Parse(piece.File, piece.Data))
		}
	}
	return all
}

// apply makes the steps of an apply.
func (p *storePlan) apply(have map[config.Key]*config.Object) error {
	all := p.parse()
	p.problems = all.Problems
	for _, o := range all.Objects {
		p.add(o.Key, have[o.Key], o)
	}
	return refusal(p.problems)
}

// planDelete makes the steps of a delete, for which only the names in files count.
func (a *API) planDelete(p *storePlan, have map[config.Key]*config.Object) error {
	all := p.parse()
	if all.Unread {
		return refusal(all.Problems)
	}
	keys := all.Broken
	for _, o := range all.Objects {
		keys = append(keys, o.Key)
	}
	for _, piece := range p.Pieces {
		if piece.Ref != nil {
			key, err := keyOf(*piece.Ref)
			if err != nil {
				return err
			}
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, config.Key.Compare)
	for _, key := range slices.Compact(keys) {
		if have[key] == nil && !p.MissingOK {
			if place := a.definedAt(key); place != "" {
				return notFound("nothing was deleted: %s is not in the store. %s defines it: delete it "+
					"there", key, place)
			}
			return notFound("nothing was deleted: the store has no %s (--ignore-not-found deletes "+
				"the others)", key)
		}
		p.add(key, have[key], nil)
	}
	return nil
}

// planRollback makes the steps of a rollback.
func (a *API) planRollback(ctx context.Context, p *storePlan, have map[config.Key]*config.Object) error {
	var key config.Key
	if p.Ref != nil {
		var err error
		if key, err = keyOf(*p.Ref); err != nil {
			return err
		}
	}
	past, err := a.Store.History(ctx, config.Query{Key: key, After: p.Revision})
	if err != nil {
		return err
	}
	changes, err := config.Back(past, p.Revision)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Object != nil {
			p.problems = append(p.problems, config.Validate(c.Object)...)
		}
		p.add(c.Key, have[c.Key], c.Object)
	}
	return refusal(p.problems)
}

// unchangedSince refuses a plan that touches what somebody wrote after the revision p.At.
func (a *API) unchangedSince(ctx context.Context, p *storePlan) error {
	past, err := a.Store.History(ctx, config.Query{After: p.At, Bare: true})
	if err == nil {
		err = past.Reaches(p.At)
	}
	if err != nil {
		return err
	}
	touched := map[config.Key]bool{}
	for _, c := range p.changes() {
		touched[c.Key] = true
	}
	for _, r := range past.Revisions {
		for _, w := range r.Writes {
			if touched[w.Key] {
				return conflict("nothing was written: %s was changed at revision %s by %s: see "+
					"\"ashorectl history KIND NAME --diff\" and --dry-run, and write again", w.Key, r.Number, r.Who)
			}
		}
	}
	return nil
}
