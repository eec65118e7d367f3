package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/push"
)

// jwksSettings say from where the keys of issuers of tokens are fetched.
type jwksSettings struct {
	// Allow are address ranges that keys are fetched from although they are loopback, link-local or a metadata service.
	// Default: none.
	Allow []netip.Prefix `yaml:"allow"`
	// AllowHTTP lets keys come without TLS. Default: no.
	AllowHTTP bool `yaml:"allowHTTP"`
	// Refresh is how often keys are fetched. Default 20m.
	Refresh time.Duration `yaml:"refresh"`
}

// keySource keeps the keys of RequestAuthentications for the assembler.
type keySource struct {
	keeper *jwks.Keeper
	last   *push.KeySets // what was sent last; of the goroutine of Run
}

// keysFile is where keys are kept across restarts, in the state folder. They are public.
const keysFile = "jwks.json"

func newKeySource(s jwksSettings, state string, log hclog.Logger) *keySource {
	fetcher := jwks.NewFetcher(jwks.Config{Allow: s.Allow, AllowHTTP: s.AllowHTTP})
	return &keySource{keeper: jwks.NewKeeper(jwks.KeeperConfig{
		Fetch: fetcher.Fetch, File: filepath.Join(state, keysFile), Refresh: s.Refresh, Log: log,
	})}
}

// Want implements push.KeySource.
func (k *keySource) Want(urls []string) { k.keeper.Want(urls) }

// Run implements push.KeySource. Equal keys are one pointer.
func (k *keySource) Run(ctx context.Context, out chan<- *push.KeySets) error {
	return k.keeper.Run(ctx, func(ctx context.Context, texts map[string]string) {
		if k.last == nil || !maps.Equal(k.last.ByURL, texts) {
			k.last = &push.KeySets{ByURL: texts}
		}
		select {
		case out <- k.last:
		case <-ctx.Done():
		}
	})
}

// problems tell of keys that cannot be fetched.
func (k *keySource) problems() []feed.Problem {
	var out []feed.Problem
	for _, f := range k.keeper.Failures() {
		text := fmt.Sprintf("keys cannot be fetched from %s since %s: %v; ", f.URL, f.Since.Format(time.RFC3339), f.Err)
		if f.Kept {
			out = append(out, feed.Problem{Severity: feed.Warning, Source: "jwks", Object: f.URL, Text: text + "those that were fetched last are in use"})
			continue
		}
		out = append(out, feed.Problem{Severity: feed.Error, Source: "jwks", Object: f.URL, Text: text + "every token that needs them is refused"})
	}
	return out
}
