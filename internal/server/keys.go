package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/push"
)

// keySource fetches the keys of the issuers that policies name, for the assembler.
type keySource struct{ *jwks.Refresher }

// newKeySource keeps what it has fetched in the state folder.
func newKeySource(s settings.Config, log hclog.Logger) keySource {
	fetcher := jwks.NewFetcher(s.FetchConfig)
	return keySource{jwks.NewRefresher(jwks.RefresherConfig{Fetch: fetcher.Fetch,
		File: filepath.Join(s.State, "jwks.json"), Log: log})}
}

// Run implements push.KeySource.
func (k keySource) Run(ctx context.Context, out chan<- *push.KeySets) error {
	return k.Refresher.Run(ctx, func(ctx context.Context, texts map[string]string) {
		select {
		case out <- &push.KeySets{ByURL: texts}:
		case <-ctx.Done():
		}
	})
}

// problems are the keys that cannot be fetched, with the objects that need them. The context may be nil.
func (k keySource) problems(c *push.Context) []feed.Problem {
	out := issuerProblems("keys of issuers", k.Failures())
	if c == nil {
		return out
	}
	for i := range out {
		for j, o := range push.KeyUsers(c.Inputs().Objects, out[i].Object) {
			if j == 0 {
				out[i].File, out[i].Line = o.Origin.File, o.Origin.Line
			}
			out[i].Text += fmt.Sprintf("; %s needs them", o.Key)
		}
	}
	return out
}

// collect counts them.
func (k keySource) collect(emit emitFunc) {
	emit("ashore_jwks_failing", "Addresses of issuers' keys that cannot be fetched.", float64(len(k.Failures())))
}

// issuerProblems are the keys of issuers that cannot be read.
func issuerProblems(source string, failures []jwks.Failure) (out []feed.Problem) {
	for _, f := range failures {
		p := feed.Problem{Severity: feed.Error, Source: source, Object: f.URL, Since: f.Since, Stale: f.Kept,
			Text: f.Err.Error()}
		if errors.Is(f.Err, jwks.ErrAddress) {
			p.Text += " (the setting fetch.allow opens a range of addresses)"
		}
		if f.Kept {
			p.Severity, p.Text = feed.Warning, p.Text+"; the keys that were read last stay in use"
		} else {
			p.Text += "; no token of its issuers is accepted until they can be read"
		}
		out = append(out, p)
	}
	return out
}
