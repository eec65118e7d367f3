package main

import (
	"context"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// fewChanges is how many changes of one revision are told, unless all are asked for.
const fewChanges = 20

// History implements admin.Stores.
func (k *storekeeper) History(ctx context.Context, r admin.HistoryRequest) (admin.StoreHistory, error) {
	q := config.Query{Limit: r.Limit, Bare: !r.Differences}
	if r.Ref != nil {
		var err error
		if q.Key, err = keyOf(*r.Ref); err != nil {
			return admin.StoreHistory{}, err
		}
	}
	past, err := k.store.History(ctx, q)
	if err != nil {
		return admin.StoreHistory{}, storeError(err)
	}
	out := admin.StoreHistory{Latest: past.Latest, Since: past.Since, Revisions: []admin.StoreRevision{}}
	for _, rev := range past.Revisions {
		shown, err := shownRevision(rev, r)
		if err != nil {
			return out, err
		}
		out.Revisions = append(out.Revisions, shown)
	}
	return out, nil
}

// shownRevision is a past write for operators.
func shownRevision(r config.Revision, q admin.HistoryRequest) (admin.StoreRevision, error) {
	out := admin.StoreRevision{Revision: r.Number, Who: r.Who, When: r.When, Changes: []admin.ObjectChange{}, Count: map[string]int{}}
	for _, w := range r.Writes {
		c := admin.ObjectChange{Ref: refOf(w.Key), Action: actionOf(w.Before, w.After)}
		out.Count[c.Action]++
		if !q.All && !q.Differences && len(out.Changes) == fewChanges {
			continue
		}
		if q.Differences {
			var err error
			if c.Difference, err = objectDifference(w.Before, w.After); err != nil {
				return out, err
			}
		}
		out.Changes = append(out.Changes, c)
	}
	return out, nil
}
