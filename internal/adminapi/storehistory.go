package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// maxDifferences is how many revisions one answer shows with their differences, and
// maxDifferenceBytes limits their objects: both sides of all changes are in memory.
const maxDifferences, maxDifferenceBytes = 20, 4 << 20

// written is what a plan did, or would do. Differences take a while: they end with ctx.
func written(ctx context.Context, p *storePlan, preview bool) (admin.Written, error) {
	out := admin.Written{Revision: p.revision, Preview: preview, Changes: []admin.ObjectChange{}, Warnings: p.problems}
	for _, s := range p.steps {
		c := admin.ObjectChange{Ref: refOf(s.Key), Action: s.action, Note: s.note}
		if preview && s.action != admin.Unchanged {
			var err error
			if c.Difference, err = objectDifference(ctx, s.have, s.Object); err != nil {
				return out, err
			}
		}
		out.Changes = append(out.Changes, c)
	}
	return out, nil
}

// History returns past writes, the latest first. With differences, maxDifferences and
// maxDifferenceBytes limit them.
// Errors: admin.ErrInvalid, admin.ErrNotFound.
func (a *API) History(ctx context.Context, r admin.HistoryRequest) (admin.StoreHistory, error) {
	out := admin.StoreHistory{Revisions: []admin.StoreRevision{}}
	q := config.Query{Limit: max(r.Limit, 0), Bare: !r.Differences}
	if r.Differences {
		q.Bytes = maxDifferenceBytes
		if q.Limit == 0 || q.Limit > maxDifferences {
			q.Limit = maxDifferences
		}
	}
	if r.Ref != nil {
		var err error
		if q.Key, err = keyOf(*r.Ref); err != nil {
			return out, err
		}
	}
	past, err := a.Store.History(ctx, q)
	if err != nil {
		return out, storeError(err)
	}
	out.Latest, out.Since = past.Latest, past.Since
	for _, rev := range past.Revisions {
		shown := admin.StoreRevision{Revision: rev.Number, Who: rev.Who, When: rev.When, Changes: []admin.ObjectChange{}}
		for _, w := range rev.Writes {
			c := admin.ObjectChange{Ref: refOf(w.Key), Action: actionOf(w.Before, w.After)}
			if r.Differences {
				if c.Difference, err = objectDifference(ctx, w.Before, w.After); err != nil {
					return out, err
				}
			}
			shown.Changes = append(shown.Changes, c)
		}
		out.Revisions = append(out.Revisions, shown)
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
		if o.Origin.File != "" {
			names[i] += fmt.Sprintf(" (%s:%d)", o.Origin.File, o.Origin.Line)
		} else {
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
