package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// A problem is logged once when it appears and once when it is over, and not again because its
// source cannot be asked meanwhile. It is not over when another one takes its place.
func TestProblemLog(t *testing.T) {
	t.Parallel()
	typo, twice := feed.Problem{Source: "file:/x", Text: "typo"}, feed.Problem{Source: "file:/x", Text: "defined twice"}
	elsewhere := feed.Problem{Source: "file:/y", Text: "typo"}
	retained := func(object string) feed.Problem {
		return feed.Problem{Source: "dc1", Object: object, Text: object + " retained"}
	}
	synctest.Test(t, func(t *testing.T) {
		var now []feed.Problem
		var fails error
		var logged []string
		l := &problemLog{problems: func() ([]feed.Problem, error) { return now, fails },
			report: func(appeared, gone []feed.Problem) {
				for _, p := range appeared {
					logged = append(logged, "+ "+p.Source+" "+p.Text)
				}
				for _, p := range gone {
					logged = append(logged, "- "+p.Source+" "+p.Text)
				}
			}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.run(ctx) }()
		for _, step := range []struct {
			name string
			now  []feed.Problem
			err  error
			want []string
		}{
			{"none", nil, nil, nil},
			{"one appears", []feed.Problem{typo}, nil, []string{"+ file:/x typo"}},
			{"it stays", []feed.Problem{typo}, nil, nil},
			{"more appear", []feed.Problem{twice, typo, elsewhere, elsewhere}, nil, []string{"+ file:/x defined twice", "+ file:/y typo"}},
			{"no answer", nil, errors.New("no answer"), nil},
			{"one is over", []feed.Problem{typo, elsewhere}, nil, []string{"- file:/x defined twice"}},
			{"all are over", nil, nil, []string{"- file:/x typo", "- file:/y typo"}},
			{"one is back", []feed.Problem{typo}, nil, []string{"+ file:/x typo"}},
			{"objects are retained", []feed.Problem{retained("a"), retained("b")}, nil,
				[]string{"+ dc1 a retained", "+ dc1 b retained", "- file:/x typo"}},
			{"they are removed", []feed.Problem{{Source: "dc1", Text: "removed"}}, nil, []string{"+ dc1 removed"}},
			{"they are back", nil, nil, []string{"- dc1 removed"}},
		} {
			now, fails, logged = step.now, step.err, nil
			time.Sleep(3 * problemLogGap)
			synctest.Wait()
			if d := cmp.Diff(step.want, logged); d != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, d)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
