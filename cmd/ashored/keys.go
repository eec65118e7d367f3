package main

import (
	"context"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/push"
)

// keySource fetches the keys of the issuers that policies name, for the assembler.
type keySource struct{ keeper *jwks.Keeper }

var _ push.KeySource = keySource{}

// newKeySource keeps what it has fetched in the state folder.
func newKeySource(s settings, log hclog.Logger) keySource {
	fetcher := jwks.NewFetcher(s.fetch)
	return keySource{jwks.NewKeeper(jwks.KeeperConfig{Fetch: fetcher.Fetch, File: filepath.Join(s.State, "jwks.json"), Log: log})}
}

// Want implements push.KeySource.
func (k keySource) Want(urls []string) { k.keeper.Want(urls) }

// Run implements push.KeySource.
func (k keySource) Run(ctx context.Context, out chan<- *push.KeySets) error {
	return k.keeper.Run(ctx, func(ctx context.Context, texts map[string]string) {
		select {
		case out <- &push.KeySets{ByURL: texts}:
		case <-ctx.Done():
		}
	})
}
