package adminapi

import (
	"context"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
)

const (
	// fewChanges is how many changes of one revision are told, unless all are asked for.
	fewChanges = 20
	// maxDifferences is how many changes one answer shows with their differences: both sides of all
	// of them are in memory.
	maxDifferences = 20_000
)

// History returns past writes, the latest first. Errors: admin.ErrInvalid, also for too many
// differences; admin.ErrNotFound.
func (k *Store) History(ctx context.Context, r admin.HistoryRequest) (admin.StoreHistory, error) {
	q := config.Query{Limit: r.Limit, Bare: true}
	if r.Limit < 0 {
		return admin.StoreHistory{}, admin.NewError(admin.ErrInvalid, "limit is %d: want 0 or more", r.Limit)
	}
	if r.Ref != nil {
		var err error
		if q.Key, err = keyOf(*r.Ref); err != nil {
			return admin.StoreHistory{}, err
		}
	}
	past, err := k.Store.History(ctx, q)
	if err == nil && r.Differences {
		n := 0
		for _, r := range past.Revisions {
			n += len(r.Writes)
		}
		if n > maxDifferences {
			return admin.StoreHistory{}, admin.NewError(admin.ErrInvalid, "%d changes are too many to show how each one "+
				"changed its object, %d may be: ask for fewer revisions (--limit), or for one object", n, maxDifferences)
		}
		q.Bare = false
		past, err = k.Store.History(ctx, q)
	}
	if err != nil {
		return admin.StoreHistory{}, storeError(err)
	}
	out := admin.StoreHistory{Latest: past.Latest, Since: past.Since, Revisions: []admin.StoreRevision{}}
	for _, rev := range past.Revisions {
		shown, err := shownRevision(ctx, rev, r)
		if err != nil {
			return out, err
		}
		out.Revisions = append(out.Revisions, shown)
	}
	return out, nil
}

// shownRevision is a past write for operators.
func shownRevision(ctx context.Context, r config.Revision, q admin.HistoryRequest) (admin.StoreRevision, error) {
	out := admin.StoreRevision{Revision: r.Number, Who: r.Who, When: r.When, Changes: []admin.ObjectChange{},
		Count: map[string]int{}}
	for _, w := range r.Writes {
		c := admin.ObjectChange{Ref: refOf(w.Key), Action: actionOf(w.Before, w.After)}
		out.Count[c.Action]++
		if !q.All && !q.Differences && len(out.Changes) == fewChanges {
			continue
		}
		if q.Differences {
			var err error
			if c.Difference, err = objectDifference(ctx, w.Before, w.After); err != nil {
				return out, err
			}
		}
		out.Changes = append(out.Changes, c)
	}
	return out, nil
}
