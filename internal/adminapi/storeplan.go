package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// maxPieces is how many files, or names, one write may have.
const maxPieces = 50_000

// storePlan is what a write to the store is about to do.
type storePlan struct {
	what    string // "apply", "delete" or "rollback to 12", for the audit log
	who     string
	options admin.StoreOptions
	steps   []storeStep   // in the order of their keys
	notes   storeFindings // of the files
	// present is the store's revision for sure when its objects were about to be read; a preview
	// has none.
	present string
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

// changes are what the store is to do.
func (p *storePlan) changes() []config.Change {
	var out []config.Change
	for _, s := range p.steps {
		if s.action != admin.Unchanged {
			out = append(out, config.Change{Key: s.key, Object: s.get, Revision: s.revision})
		}
	}
	return out
}

// present has the store know what it holds now. Without that, "unchanged" would be said of what
// another replica has changed. A preview goes by what is known. Errors: the store cannot find out.
func (k *Store) present(ctx context.Context, plan *storePlan) (err error) {
	if !plan.options.Preview {
		plan.present, err = k.Store.Apply(ctx, nil, plan.author())
	}
	return err
}

// stored is what the store has.
func (k *Store) stored(ctx context.Context) (map[config.Key]*config.Object, error) {
	list, err := k.Store.List(ctx, "", "")
	if err != nil {
		return nil, err
	}
	out := make(map[config.Key]*config.Object, len(list))
	for _, o := range list {
		out[o.Key] = o
	}
	return out, nil
}

// wants is what a write names.
type wants struct {
	all      filestore.Together // but its problems
	findings storeFindings
	refs     []config.Key
	// pieces counts what was sent.
	pieces int
}

// collect reads pieces. What is wrong with files is in the result; an error is that they could not
// be had.
func collect(p admin.Pieces) (*wants, error) {
	var w wants
	for piece, err := range p {
		if err != nil {
			return nil, err
		}
		if w.pieces++; w.pieces > maxPieces {
			return nil, admin.NewError(admin.ErrInvalid,
				fmt.Sprintf("there are more than %d files: write them in several steps; nothing was done", maxPieces))
		}
		if piece.Ref != nil {
			key, err := keyOf(*piece.Ref)
			if err != nil {
				return nil, err
			}
			w.refs = append(w.refs, key)
			continue
		}
		w.all.Add(filestore.Parse(piece.File, piece.Data))
		w.findings = append(w.findings, w.all.Problems...)
		w.all.Problems = nil // what many files have does not add up
	}
	if w.pieces == 0 {
		return nil, admin.NewError(admin.ErrInvalid, "there is no file in the request: nothing was done")
	}
	return &w, nil
}

// planApply plans to write the objects of files.
func (k *Store) planApply(ctx context.Context, p admin.Pieces, plan *storePlan) error {
	w, err := collect(p)
	if err != nil {
		return err
	}
	if len(w.refs) > 0 {
		return admin.NewError(admin.ErrInvalid, "only files can be applied, not names")
	}
	if err := w.findings.refusal(); err != nil {
		return err
	}
	plan.notes = w.findings
	if err := k.present(ctx, plan); err != nil {
		return err
	}
	have, err := k.stored(ctx)
	if err != nil {
		return err
	}
	for _, o := range w.all.Objects {
		plan.steps = append(plan.steps, newStep(o.Key, have[o.Key], o))
	}
	return nil
}

// planDelete plans to delete what files define, or names say. A file whose objects can be told need
// not be right.
func (k *Store) planDelete(ctx context.Context, p admin.Pieces, plan *storePlan) error {
	w, err := collect(p)
	if err != nil {
		return err
	}
	if w.all.Unread {
		return w.findings.refusal()
	}
	if err := k.present(ctx, plan); err != nil {
		return err
	}
	have, err := k.stored(ctx)
	if err != nil {
		return err
	}
	keys := slices.Concat(w.refs, w.all.Broken)
	for _, o := range w.all.Objects {
		keys = append(keys, o.Key)
	}
	slices.SortFunc(keys, config.Key.Compare)
	var missing []string
	for _, key := range slices.Compact(keys) {
		if have[key] == nil {
			missing = append(missing, key.String()+k.elsewhere(key.Kind, key.Namespace, key.Name))
		}
		plan.steps = append(plan.steps, newStep(key, have[key], nil))
	}
	if len(missing) > 0 && !plan.options.MissingOK {
		return admin.NewError(admin.ErrNotFound, notThere(missing, len(plan.steps)))
	}
	return nil
}

// notThere says what cannot be deleted.
func notThere(missing []string, all int) string {
	text := fmt.Sprintf("nothing was deleted: the store has no %s", missing[0])
	if n := len(missing) - 1; n > 0 {
		text += fmt.Sprintf("; %d more of what is named are missing", n)
	}
	if all > len(missing) {
		text += "; --ignore-not-found deletes the others"
	}
	return text
}

// planRollback plans to write what was at a revision.
func (k *Store) planRollback(ctx context.Context, r admin.RollbackRequest, plan *storePlan) error {
	var key config.Key
	if r.Ref != nil {
		var err error
		if key, err = keyOf(*r.Ref); err != nil {
			return err
		}
	}
	if _, err := config.ParseRevision(r.Revision); err != nil {
		return admin.NewError(admin.ErrInvalid, err.Error())
	}
	if err := k.present(ctx, plan); err != nil {
		return err
	}
	past, err := k.Store.History(ctx, config.Query{Key: key, After: r.Revision})
	if err != nil {
		return storeError(err)
	}
	changes, err := config.Back(past, r.Revision)
	if err != nil {
		return storeError(err)
	}
	have, err := k.stored(ctx)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Object != nil {
			plan.notes = append(plan.notes, config.Validate(c.Object)...)
		}
		step := newStep(c.Key, have[c.Key], c.Object)
		step.revision = c.Revision // that of the past: what was written in between is a conflict
		plan.steps = append(plan.steps, step)
	}
	if err := plan.notes.refusal(); err != nil {
		return err
	}
	if r.Ref != nil && len(past.Revisions) == 0 {
		plan.steps = append(plan.steps, newStep(key, have[key], have[key]))
	}
	return nil
}

// hold puts the steps in order and compares with the revision that the operator has seen.
func (k *Store) hold(ctx context.Context, p *storePlan) error {
	slices.SortFunc(p.steps, func(a, b storeStep) int { return a.key.Compare(b.key) })
	if p.options.Force {
		for i := range p.steps {
			p.steps[i].revision = ""
		}
	}
	if p.options.At == "" {
		return nil
	}
	past, err := k.Store.History(ctx, config.Query{After: p.options.At})
	if err == nil {
		err = past.Reaches(p.options.At)
	}
	if err != nil {
		return storeError(fmt.Errorf("what was changed since is not known: %w", err))
	}
	return conflictOf(p, past)
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
	slices.SortFunc(found, func(a, b admin.Conflict) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	first := found[0]
	text := fmt.Sprintf("nothing was written: %s was changed at revision %s by %s", first.Ref, first.Revision,
		first.Who)
	if n := len(found) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more since", n)
	}
	return &admin.Refusal{Text: text, Is: admin.ErrConflict, Conflicts: found}
}

// raced says who was faster, when the store says that somebody was.
func (k *Store) raced(ctx context.Context, p *storePlan, since string, err error) error {
	if !errors.Is(err, config.ErrConflict) && !errors.Is(err, config.ErrNotFound) {
		return err
	}
	past, lost := k.Store.History(ctx, config.Query{After: since})
	if lost == nil {
		if named := conflictOf(p, past); named != nil {
			return named
		}
	}
	return admin.NewError(admin.ErrConflict, "nothing was written: "+err.Error())
}
