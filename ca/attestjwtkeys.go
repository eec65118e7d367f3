package ca

import (
	"context"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/readfile"
)

// pokePause is the least time between two readings of keys: whoever sends tokens of made-up keys
// shall not have us ask issuers all the time.
const pokePause = 10 * time.Second

// Run reads the keys of all issuers, and reads them again from time to time and when a token names
// one that is not known, until ctx ends. Where they cannot be read, the last good ones stay.
func (a *JWTAttestor) Run(ctx context.Context) error {
	for {
		for _, k := range a.order {
			a.read(ctx, k)
		}
		if !pause(ctx, pokePause, nil) || !pause(ctx, a.refresh-pokePause, a.wake) {
			return nil
		}
	}
}

// pause waits for d, or less when wake tells; it says false when ctx has ended.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-wake:
	}
	return ctx.Err() == nil
}

// read reads the keys of an issuer. Each thing that is wrong is logged once.
func (a *JWTAttestor) read(ctx context.Context, k *issuerKeys) {
	set, err := a.load(ctx, k.Issuer)
	if err != nil {
		if ctx.Err() == nil && err.Error() != k.last {
			a.log.Warn("keys of an issuer cannot be read, the last good ones stay", "issuer", k.Name,
				"known", k.keys.Load() != nil, "error", err)
			k.last = err.Error()
			k.failed.Store(&err)
		}
		return
	}
	if k.last != "" || k.keys.Load() == nil {
		a.log.Info("keys of an issuer were read", "issuer", k.Name, "keys", set.Len())
		k.last = ""
	}
	k.failed.Store(nil)
	k.keys.Store(set)
}

// IssuerFailure is an issuer whose keys cannot be read.
type IssuerFailure struct {
	Issuer string
	Err    error
	// Kept says that those that were read last stay in use; else no token of the issuer is
	// accepted.
	Kept bool
}

// Failures are the issuers whose keys cannot be read now, in the order of the settings.
func (a *JWTAttestor) Failures() []IssuerFailure {
	var out []IssuerFailure
	for _, k := range a.order {
		if err := k.failed.Load(); err != nil {
			out = append(out, IssuerFailure{Issuer: k.Name, Err: *err, Kept: k.keys.Load() != nil})
		}
	}
	return out
}

func (a *JWTAttestor) load(ctx context.Context, s Issuer) (*jwks.Set, error) {
	if s.URL != "" {
		return a.fetcher.Fetch(ctx, s.URL)
	}
	text, _, err := readfile.Read(s.File, jwks.MaxBytes)
	if err != nil {
		return nil, err
	}
	set, err := jwks.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.File, err)
	}
	return set, nil
}
