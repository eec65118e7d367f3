package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// setup is one mesh and one fleet.
type setup struct {
	fleet.Shape
	Proxies int
	Delta   bool
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
	return fmt.Sprintf("%d services × %d endpoints, %d proxies, %s, %s", c.Services, c.Endpoints, c.Proxies, way, scope)
}

// comparison is what a setup cost.
type comparison struct {
	setup
	Ours fleet.Result
	// Base is what it is compared with: the floor, or for state of the world ashored by delta.
	Base fleet.Result
}

// options of the comparison.
type options struct {
	ashored string
	write   string
	strict  bool
	build   bool
	setups  []setup
	command string
}

func compareOptions(args []string) (options, error) {
	fs := newFlags("bench")
	var o options
	var shape fleet.Shape
	shapeFlags(fs, &shape)
	fs.StringVar(&o.ashored, "ashored", "bin/ashored", "the program to measure")
	fs.StringVar(&o.write, "write", "", "Markdown file whose table of results is replaced; empty: none")
	fs.BoolVar(&o.strict, "strict", false, "end with an error when a target is missed")
	proxies := fs.String("proxies", "200,1000", "sizes of the fleet")
	fs.BoolVar(&o.build, "build", true, "also the Go benchmarks of building a context")
	sotw := fs.Bool("sotw", false, "measure state of the world beside delta too")
	all := fs.Bool("all", false, "also state of the world, 50 endpoints a service, and a scoped mesh")
	if err := parse(fs, args); err != nil {
		return o, err
	}
	for _, p := range strings.Split(*proxies, ",") {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 {
			return o, fmt.Errorf("%w: -proxies %s: want numbers such as 200,1000", errUsage, *proxies)
		}
		o.setups = append(o.setups, setup{shape, n, true})
		if *sotw || *all && n <= 200 {
			o.setups = append(o.setups, setup{shape, n, false})
		}
	}
	if *all {
		many, scoped := shape, shape
		many.Endpoints, scoped.Services, scoped.Scoped = 50, 2*shape.Services, true
		o.setups = append(o.setups, setup{many, 200, true}, setup{scoped, 1000, true})
	}
	o.command = strings.TrimSpace("make bench ARGS=\"" + strings.Join(args, " ") + "\"")
	return o, nil
}

// compare measures every setup and prints, and maybe writes, the table.
func compare(ctx context.Context, args []string) error {
	o, err := compareOptions(args)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.ashored); err != nil {
		return fmt.Errorf("the program to measure (-ashored; \"make build\" makes it): %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	b := &bench{options: o, self: self, work: work}
	err = b.all(ctx)
	return errors.Join(err, os.RemoveAll(work))
}

// bench is a comparison at work.
type bench struct {
	options
	self, work string
	done       []comparison
}

func (b *bench) all(ctx context.Context) error {
	for _, c := range b.setups {
		say("\n%s", c.title())
		done, err := b.measure(ctx, c)
		if err != nil {
			return err
		}
		b.done = append(b.done, done)
	}
	text, missed := report(b.done)
	if b.build {
		say("\nbuilding a context")
		table, more, err := goBench(ctx)
		if err != nil {
			return err
		}
		text, missed = text+table, missed+more
	}
	if _, err := fmt.Print("\n", text); err != nil {
		return err
	}
	if b.write != "" {
		if err := writeTable(b.write, b.command, machine(), text); err != nil {
			return err
		}
	}
	if missed > 0 && b.strict {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

// measure runs one setup on ashored and on what it is compared with.
func (b *bench) measure(ctx context.Context, c setup) (comparison, error) {
	out := comparison{setup: c}
	var err error
	if out.Base, err = b.base(ctx, c); err != nil {
		return out, err
	}
	out.Ours, err = b.ashoredOnly(ctx, c)
	return out, err
}

// base is the result to compare with: delta of the same size, which was measured before, for state of
// the world; else the floor of the very bytes that ashored sends.
func (b *bench) base(ctx context.Context, c setup) (fleet.Result, error) {
	if !c.Delta {
		for _, done := range b.done {
			if done.Shape == c.Shape && done.Proxies == c.Proxies && done.Delta {
				return done.Ours, nil
			}
		}
		c.Delta = true
		return b.ashoredOnly(ctx, c)
	}
	files, err := b.mesh(c.Shape)
	if err != nil {
		return fleet.Result{}, err
	}
	recorded, err := startAshored(ctx, b.options.ashored, files, b.work)
	if err != nil {
		return fleet.Result{}, err
	}
	floor, err := startFloor(b.self, files, c.Shape, recorded.addr)
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
	s, err := startAshored(ctx, b.options.ashored, files, b.work)
	if err != nil {
		return fleet.Result{}, err
	}
	say("  ashored")
	result, err := load(ctx, b.self, files, c, s)
	return result, errors.Join(err, s.stop())
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

// say tells how far it is. There is nowhere to tell that this failed.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }
