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
