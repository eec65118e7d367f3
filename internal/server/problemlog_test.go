package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// A problem is logged once when it appears and once when it is over, and not again because its
// source cannot be asked meanwhile.
func TestProblemLog(t *testing.T) {
	t.Parallel()
	typo, twice := feed.Problem{Source: "files", File: "a.yaml", Line: 2, Text: "typo"}, feed.Problem{Source: "files", Text: "defined twice"}
	elsewhere := feed.Problem{Source: "files:y", Text: "typo"}
	retained := func(object string) feed.Problem {
		return feed.Problem{Source: "dc1", Object: object, Text: object + " retained"}
	}
	moved := typo
	moved.Line++
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards now, fails and text
		var now []feed.Problem
		var fails error
		var text bytes.Buffer
		log := hclog.New(&hclog.LoggerOptions{Output: &text, Mutex: &mu, JSONFormat: true})
		sources := func() ([]feed.Problem, error) {
			mu.Lock()
			defer mu.Unlock()
			return now, fails
		}
		l := &problemLog{sources: sources, analyzed: func() []feed.Problem { return nil }, log: log}
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
			{"one appears", []feed.Problem{typo}, nil, []string{"+ files a.yaml:2: typo"}},
			{"it stays", []feed.Problem{typo}, nil, nil},
			{"it moves to another line", []feed.Problem{moved}, nil, nil},
			{"more appear", []feed.Problem{twice, typo, elsewhere, elsewhere}, nil, []string{"+ files defined twice", "+ files:y typo"}},
			{"no answer", nil, errors.New("no answer"), nil},
			{"one is over", []feed.Problem{typo, elsewhere}, nil, []string{"- files defined twice"}},
			{"all are over", nil, nil, []string{"- files a.yaml:2: typo", "- files:y typo"}},
			{"one is back", []feed.Problem{typo}, nil, []string{"+ files a.yaml:2: typo"}},
			{"objects are retained", []feed.Problem{retained("a"), retained("b")}, nil,
				[]string{"+ dc1 a: a retained", "+ dc1 b: b retained", "- files a.yaml:2: typo"}},
			{"they are removed", []feed.Problem{{Source: "dc1", Text: "removed"}}, nil,
				[]string{"+ dc1 removed", "- dc1 a: a retained", "- dc1 b: b retained"}},
			{"they are back", nil, nil, []string{"- dc1 removed"}},
		} {
			mu.Lock()
			now, fails = step.now, step.err
			text.Reset()
			mu.Unlock()
			time.Sleep(3 * problemLogGap)
			synctest.Wait()
			mu.Lock()
			var logged []string
			for lines := json.NewDecoder(&text); lines.More(); {
				var line map[string]string
				if err := lines.Decode(&line); err != nil {
					t.Fatal(err)
				}
				sign := map[bool]string{true: "- ", false: "+ "}[strings.HasSuffix(line["@message"], "is over")]
				logged = append(logged, sign+line["source"]+" "+line["problem"])
			}
			mu.Unlock()
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

// Thousands of problems that appear at once are some lines of the log, and their number.
func TestProblemLogMany(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]feed.Problem {
		out := map[string]feed.Problem{}
		for i := range n {
			id := fmt.Sprintf("no. %05d", i)
			out[id] = feed.Problem{Severity: feed.Warning, Text: id}
		}
		return out
	}
	for name, tc := range map[string]struct {
		list  map[string]feed.Problem
		lines int
		last  string
	}{
		"few":  {many(maxLogged), maxLogged, "no. 00049"},
		"many": {many(10_000), maxLogged + 1, "problems=9950"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			(&problemLog{log: hclog.New(&hclog.LoggerOptions{Output: &text})}).write(tc.list, nil, hclog.Warn, "one")
			lines := strings.Split(strings.TrimSpace(text.String()), "\n")
			if last := lines[len(lines)-1]; len(lines) != tc.lines || !strings.Contains(last, tc.last) {
				t.Errorf("%d lines, the last %q; want %d, the last with %q", len(lines), last, tc.lines, tc.last)
			}
		})
	}
}
