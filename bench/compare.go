package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// setup is one mesh and one fleet.
type setup struct {
	fleet.Shape
	Proxies int
	Delta   bool
	// TLS says that proxies connect by mutual TLS, each with a certificate of its own.
	TLS bool
}

// title names a setup to people.
func (c setup) title() string {
	way, scope := "delta", "unscoped"
	if !c.Delta {
		way = "state of the world"
	}
	if c.Scoped {
		scope = fmt.Sprintf("scoped to %d namespaces", c.Namespaces)
	}
	title := fmt.Sprintf("%d services × %d endpoints, %d proxies, %s, %s", c.Services, c.Endpoints, c.Proxies, way,
		scope)
	if c.TLS {
		title += ", mutual TLS"
	}
	if c.Policies > 0 {
		title += fmt.Sprintf(", strict, %d policies", c.Policies)
	}
	return title
}

// comparison is what a setup cost.
type comparison struct {
	setup
	Ours fleet.Result
	// Base is what it is compared with: the floor, or for state of the world ashored by delta.
	Base fleet.Result
}

// compareAll measures the setups, each beside what it is compared with.
func (b *bench) compareAll(ctx context.Context, setups []setup) (section, error) {
	var done []comparison
	for _, c := range setups {
		say("\n%s", c.title())
		one, err := b.measure(ctx, c, done)
		if err != nil {
			return section{}, err
		}
		done = append(done, one)
	}
	text, missed := report(done)
	return section{text: text, missed: missed}, nil
}

// measure runs one setup on ashored and on what it is compared with; before is what was measured
// before.
func (b *bench) measure(ctx context.Context, c setup, before []comparison) (comparison, error) {
	out := comparison{setup: c}
	var err error
	if out.Base, err = b.base(ctx, c, before); err != nil {
		return out, err
	}
	out.Ours, err = b.ashoredOnly(ctx, c)
	return out, err
}

// base is the result to compare with: delta of the same size, which was measured before, for state
// of the world; else the floor of the very bytes that ashored sends.
func (b *bench) base(ctx context.Context, c setup, before []comparison) (fleet.Result, error) {
	if !c.Delta {
		c.Delta = true
		for _, done := range before {
			if done.setup == c {
				return done.Ours, nil
			}
		}
		return b.ashoredOnly(ctx, c)
	}
	files, err := b.mesh(c.Shape)
	if err != nil {
		return fleet.Result{}, err
	}
	recorded, err := b.ashoredFor(ctx, c, files)
	if err != nil {
		return fleet.Result{}, err
	}
	floor, err := startFloor(b.self, files, c.Shape, recorded)
	if err = errors.Join(err, recorded.stop()); err != nil {
		return fleet.Result{}, err
	}
	say("  floor")
	result, err := load(ctx, b.self, files, c, floor)
	return result, errors.Join(err, floor.stop())
}

// ashoredOnly measures ashored on a fresh mesh.
func (b *bench) ashoredOnly(ctx context.Context, c setup) (fleet.Result, error) {
	files, err := b.mesh(c.Shape)
	if err != nil {
		return fleet.Result{}, err
	}
	s, err := b.ashoredFor(ctx, c, files)
	if err != nil {
		return fleet.Result{}, err
	}
	say("  ashored")
	result, err := load(ctx, b.self, files, c, s)
	return result, errors.Join(err, s.stop())
}

// ashoredFor starts ashored for a setup: in plaintext, or with TLS and an authority that signs for
// the proxies too.
func (b *bench) ashoredFor(ctx context.Context, c setup, files string) (*server, error) {
	if !c.TLS {
		return startAshored(ctx, ashored{bin: b.options.ashored, files: files, work: b.work})
	}
	authority := filepath.Join(filepath.Dir(files), "authority")
	if err := fleet.WriteAuthority(authority); err != nil {
		return nil, err
	}
	return startAshored(ctx, ashored{bin: b.options.ashored, files: files, work: b.work, secure: true,
		authority: authority})
}

// mesh writes a fresh folder of configuration.
func (b *bench) mesh(s fleet.Shape) (string, error) {
	dir, err := os.MkdirTemp(b.work, "mesh")
	if err != nil {
		return "", err
	}
	files := filepath.Join(dir, "files")
	return files, s.Write(files)
}
