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
	// TLS means that proxies connect by mutual TLS, each with its own certificate.
	TLS bool
}

// title describes the setup for people.
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

// comparison is the cost of a setup.
type comparison struct {
	setup
	Ours fleet.Result
	// Base is the result to compare with: the floor, or for state of the world ashored with delta.
	Base fleet.Result
}

// compareAll measures each setup and its base, and prints a table for each.
func (b *bench) compareAll(ctx context.Context, setups []setup) error {
	if _, err := fmt.Printf("On %s:\n\n", machine()); err != nil {
		return err
	}
	var done []comparison
	for _, c := range setups {
		say("\n%s", c.title())
		one, err := b.measure(ctx, c, done)
		if err != nil {
			return err
		}
		done = append(done, one)
		if _, err := fmt.Println(one.report()); err != nil {
			return err
		}
	}
	return nil
}

// measure runs one setup on ashored and on its base. before has the earlier comparisons.
func (b *bench) measure(ctx context.Context, c setup, before []comparison) (comparison, error) {
	out := comparison{setup: c}
	var err error
	if out.Base, err = b.base(ctx, c, before); err != nil {
		return out, err
	}
	out.Ours, err = b.ashoredOnly(ctx, c)
	return out, err
}

// base returns the result to compare with. For state of the world that is ashored with delta, and
// otherwise the floor.
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

// ashoredOnly measures ashored on a new mesh.
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

// ashoredFor starts ashored for a setup: in plaintext, or with TLS and an authority that also signs
// for the proxies.
func (b *bench) ashoredFor(ctx context.Context, c setup, files string) (*server, error) {
	if !c.TLS {
		return startAshored(ctx, ashored{bin: b.options.ashored, files: files, work: b.work})
	}
	authority := filepath.Join(filepath.Dir(files), "authority")
	if err := fleet.WriteAuthority(authority); err != nil {
		return nil, err
	}
	return startAshored(ctx, ashored{bin: b.options.ashored, files: files, work: b.work, authority: authority})
}

// mesh writes a new folder of configuration.
func (b *bench) mesh(s fleet.Shape) (string, error) {
	dir, err := os.MkdirTemp(b.work, "mesh")
	if err != nil {
		return "", err
	}
	files := filepath.Join(dir, "files")
	return files, s.Write(files)
}
