package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// maxPieces is how many files, or names, one write may have.
	maxPieces = 50_000
	// maxStoreProblems is how many problems of one write are listed.
	maxStoreProblems = 1000
)

// storePlan is what a write to the store is about to do.
type storePlan struct {
	admin.StoreWrite
	who      string
	problems []config.Problem // of the files
	steps    []storeStep      // by key
	present  string           // the store's revision, before and then after the write
}

// storeStep is what is to become of one object.
type storeStep struct {
	key       config.Key
	have, get *config.Object // nil: none
	revision  string         // that it must have; see config.Change
	action    string         // what that does
}

// newStep is a step that holds for the object as it is now.
func newStep(key config.Key, have, get *config.Object) storeStep {
	s := storeStep{key: key, have: have, get: get, revision: config.Absent, action: actionOf(have, get)}
	if have != nil {
		s.revision = have.Revision
	}
	if config.SameContent(have, get) {
		s.action = admin.Unchanged
	}
	return s
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
		if s.action != admin.Unchanged {
			out = append(out, config.Change{Key: s.key, Object: s.get, Revision: s.revision})
		}
	}
	return out
}

// refusal refuses a write whose files have errors; nil when there is none.
func (p *storePlan) refusal() error {
	n := feed.Errors(p.problems)
	if n == 0 {
		return nil
	}
	text := "1 error: nothing was written"
	if n > 1 {
		text = fmt.Sprintf("%d errors: nothing was written", n)
	}
	return &admin.Refusal{Text: text, Is: admin.ErrInvalid, Problems: listed(p.problems)}
}

// listed returns the problems that operators see. Of too many, errors come first.
func listed(problems []config.Problem) []config.Problem {
	left := len(problems) - maxStoreProblems
	if left <= 0 {
		return problems
	}
	problems = slices.Clone(problems)
	slices.SortStableFunc(problems, func(a, b config.Problem) int {
		return cmp.Compare(feed.Errors([]config.Problem{b}), feed.Errors([]config.Problem{a}))
	})
	return append(problems[:maxStoreProblems], config.Problem{Severity: feed.Warning,
		Text: fmt.Sprintf("%d more are not listed, errors are listed first: fix these to see the others", left)})
}

// Write writes to the store: all or nothing. Every write is in the audit log, also one that was
// refused. Errors: admin.ErrInvalid, admin.ErrConflict, admin.ErrNotFound; often an *admin.Refusal.
func (k *Store) Write(ctx context.Context, w admin.StoreWrite) (admin.Written, error) {
	note := k.notes() // of what is active before the write
	p := &storePlan{StoreWrite: w, who: admin.Actor(ctx)}
	past, err := k.Store.History(ctx, config.Query{Limit: -1}) // before the objects are read
	p.present = past.Latest
	if err == nil {
		err = k.plan(ctx, p)
	}
	changes := p.changes()
	if err == nil && len(changes) > 0 {
		if p.present, err = k.Store.Apply(ctx, changes, p.author()); err != nil {
			err = k.raced(ctx, p, past.Latest, err)
		}
	}
	k.audit(p, len(changes), err)
	if err != nil {
		return admin.Written{}, err
	}
	out := admin.Written{Revision: p.present, Warnings: listed(p.problems)}
	out.Changes, err = shown(ctx, p, note, false)
	return out, err
}

// Preview returns what Write would do, with the differences. It uses the objects that this replica
// knows. Errors: those of Write.
func (k *Store) Preview(ctx context.Context, w admin.StoreWrite) (admin.Written, error) {
	note := k.notes()
	p := &storePlan{StoreWrite: w}
	p.Preview = true
	past, err := k.Store.History(ctx, config.Query{Limit: -1})
	if err == nil {
		err = k.plan(ctx, p)
	}
	if err != nil {
		return admin.Written{}, err
	}
	out := admin.Written{Revision: past.Latest, Preview: true,
		Warnings: append(listed(p.problems), k.outdated(past.Latest)...)}
	out.Changes, err = shown(ctx, p, note, true)
	return out, err
}

// outdated warns that a preview uses an old revision, while the store cannot be read.
func (k *Store) outdated(revision string) []feed.Problem {
	s, ok := k.Store.(interface{ Standing() config.Outage })
	if !ok || s.Standing().Error == "" {
		return nil
	}
	now := s.Standing()
	text := fmt.Sprintf("this goes by revision %s, the latest that this ashored knew on %s: there may be newer ones, "+
		"for %s", revision, now.Since.UTC().Format(time.RFC3339), now.Error)
	return []feed.Problem{{Severity: feed.Warning, Source: k.Store.Name(), Field: "store", Text: text,
		Since: now.Since}}
}

// refresh has the store learn what other replicas wrote; their changes would else be shown as
// unchanged. A preview uses what is known.
func (k *Store) refresh(ctx context.Context, p *storePlan) (err error) {
	if !p.Preview {
		p.present, err = k.Store.Apply(ctx, nil, p.author())
	}
	return err
}

// objects returns what the store has.
func (k *Store) objects(ctx context.Context) (map[config.Key]*config.Object, error) {
	out := map[config.Key]*config.Object{}
	list, err := k.Store.List(ctx, "", "")
	for _, o := range list {
		out[o.Key] = o
	}
	return out, err
}

// plan makes the steps of a write, and compares with the revision that the operator has seen.
func (k *Store) plan(ctx context.Context, p *storePlan) error {
	var err error
	switch p.Action {
	case admin.Apply, admin.Delete:
		err = k.planPieces(ctx, p)
	case admin.Rollback:
		err = k.planRollback(ctx, p)
	default:
		err = admin.NewError(admin.ErrInvalid, "%q is not an action: want apply, delete or rollback", p.Action)
	}
	if err != nil {
		return err
	}
	slices.SortFunc(p.steps, func(a, b storeStep) int { return a.key.Compare(b.key) })
	for i := range p.steps {
		if p.Force {
			p.steps[i].revision = ""
		}
	}
	if p.At == "" {
		return nil
	}
	past, err := k.Store.History(ctx, config.Query{After: p.At})
	if err == nil {
		err = past.Reaches(p.At)
	}
	if err != nil {
		return storeError(fmt.Errorf("what was changed since is not known: %w", err))
	}
	return conflictOf(p, past)
}

// planPieces makes the steps of an apply, or of a delete, for which only the names in files count.
func (k *Store) planPieces(ctx context.Context, p *storePlan) error {
	if n := len(p.Pieces); n == 0 || n > maxPieces {
		return admin.NewError(admin.ErrInvalid, "%d files: want 1 to %d; nothing was written", n, maxPieces)
	}
	var all filestore.Together // but its problems
	var keys []config.Key
	for _, piece := range p.Pieces {
		if piece.Ref == nil {
			all.Add(filestore.Parse(piece.File, piece.Data))
			p.problems = append(p.problems, all.Problems...)
			all.Problems = nil // it limits the problems of all files together
			continue
		}
		key, err := keyOf(*piece.Ref)
		if err != nil {
			return err
		}
		if p.Action == admin.Apply {
			return admin.NewError(admin.ErrInvalid, "only files can be applied, not names")
		}
		keys = append(keys, key)
	}
	if p.Action == admin.Apply || all.Unread {
		if err := p.refusal(); err != nil {
			return err
		}
	}
	if err := k.refresh(ctx, p); err != nil {
		return err
	}
	have, err := k.objects(ctx)
	if err != nil {
		return err
	}
	if p.Action == admin.Apply {
		for _, o := range all.Objects {
			p.steps = append(p.steps, newStep(o.Key, have[o.Key], o))
		}
		return nil
	}
	p.problems = nil
	keys = append(keys, all.Broken...)
	for _, o := range all.Objects {
		keys = append(keys, o.Key)
	}
	slices.SortFunc(keys, config.Key.Compare)
	var missing []string
	for _, key := range slices.Compact(keys) {
		if have[key] == nil {
			missing = append(missing, key.String()+k.elsewhere(key.Kind, key.Namespace, key.Name))
		}
		p.steps = append(p.steps, newStep(key, have[key], nil))
	}
	if len(missing) == 0 || p.MissingOK {
		return nil
	}
	text := "nothing was deleted: the store has no " + missing[0]
	if n := len(missing) - 1; n > 0 {
		text += fmt.Sprintf("; %d more of what is named are missing", n)
	}
	if len(p.steps) > len(missing) {
		text += "; --ignore-not-found deletes the others"
	}
	return admin.NewError(admin.ErrNotFound, "%s", text)
}

// planRollback makes the steps of a rollback.
func (k *Store) planRollback(ctx context.Context, p *storePlan) error {
	var key config.Key
	if p.Ref != nil {
		var err error
		if key, err = keyOf(*p.Ref); err != nil {
			return err
		}
	}
	if _, err := config.ParseRevision(p.Revision); err != nil {
		return admin.NewError(admin.ErrInvalid, "%v", err)
	}
	if err := k.refresh(ctx, p); err != nil {
		return err
	}
	past, err := k.Store.History(ctx, config.Query{Key: key, After: p.Revision})
	if err != nil {
		return storeError(err)
	}
	changes, err := config.Back(past, p.Revision)
	if err != nil {
		return storeError(err)
	}
	have, err := k.objects(ctx)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Object != nil {
			p.problems = append(p.problems, config.Validate(c.Object)...)
		}
		step := newStep(c.Key, have[c.Key], c.Object)
		step.revision = c.Revision // that of the past: what was written in between is a conflict
		p.steps = append(p.steps, step)
	}
	if p.Ref != nil && len(past.Revisions) == 0 {
		p.steps = append(p.steps, newStep(key, have[key], have[key]))
	}
	return p.refusal()
}

// conflictOf is the refusal of a plan that touches what somebody else has written; nil when it does
// not.
func conflictOf(p *storePlan, past config.Past) error {
	touched := map[config.Key]bool{}
	for _, c := range p.changes() {
		touched[c.Key] = true
	}
	var found []admin.Conflict
	for _, r := range past.Revisions {
		for _, w := range r.Writes {
			if touched[w.Key] {
				touched[w.Key] = false // the latest is enough
				found = append(found, admin.Conflict{Ref: refOf(w.Key), Revision: r.Number, Who: r.Who, When: r.When})
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b admin.Conflict) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	first := found[0]
	text := fmt.Sprintf("nothing was written: %s was changed at revision %s by %s", first.Ref, first.Revision,
		first.Who)
	if n := len(found) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more since", n)
	}
	return &admin.Refusal{Text: text, Is: admin.ErrConflict, Conflicts: found}
}

// raced names who wrote first, when the store says that somebody did.
func (k *Store) raced(ctx context.Context, p *storePlan, since string, err error) error {
	if !errors.Is(err, config.ErrConflict) && !errors.Is(err, config.ErrNotFound) {
		return err
	}
	if past, lost := k.Store.History(ctx, config.Query{After: since}); lost == nil {
		if named := conflictOf(p, past); named != nil {
			return named
		}
	}
	return admin.NewError(admin.ErrConflict, "nothing was written: %v", err)
}

// shown is what a plan does, for operators. Differences take a while: they end with ctx.
func shown(ctx context.Context, p *storePlan, note func(config.Key, bool) string,
	differences bool) ([]admin.ObjectChange, error) {
	out := make([]admin.ObjectChange, len(p.steps))
	for i, s := range p.steps {
		out[i] = admin.ObjectChange{Ref: refOf(s.key), Action: s.action, Note: note(s.key, s.get == nil)}
		if s.have == nil && s.get == nil {
			out[i].Action = admin.Missing
		}
		if differences && s.action != admin.Unchanged {
			var err error
			if out[i].Difference, err = objectDifference(ctx, s.have, s.get); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// objectDifference returns the change of an object as a unified diff. A nil object does not exist.
func objectDifference(ctx context.Context, have, get *config.Object) (string, error) {
	names, texts := [2]string{"/dev/null", "/dev/null"}, [2]string{}
	for i, o := range []*config.Object{have, get} {
		if o == nil {
			continue
		}
		names[i] = o.Key.String()
		switch {
		case i == 1 && o.Origin.File != "":
			names[i] += fmt.Sprintf(" (%s:%d)", o.Origin.File, o.Origin.Line)
		case o.Revision == "" || o.Revision == config.Absent:
			names[i] += " (store)"
		default:
			names[i] += " (store, revision " + o.Revision + ")"
		}
		c := *o
		if have != nil {
			c.Created = have.Created // a replaced object keeps it
		}
		text, err := config.Encode([]*config.Object{&c})
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return "", err
		}
		texts[i] = string(text)
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{FromFile: names[0], ToFile: names[1], Context: 3,
		A: slices.Collect(strings.Lines(texts[0])), B: slices.Collect(strings.Lines(texts[1]))})
}

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
