package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// options are the flags of the comparison.
type options struct {
	ashored        string // the program to measure
	sizes          []int  // of the fleet
	sotw, tls, all bool
	shape          fleet.Shape
}

func parseOptions(args []string) (options, error) {
	fs := newFlags("bench")
	var o options
	shapeFlags(fs, &o.shape)
	fs.StringVar(&o.ashored, "ashored", "bin/ashored", "the control plane to measure")
	proxies := fs.String("proxies", "200,1000", "sizes of the fleet")
	fs.BoolVar(&o.sotw, "sotw", false, "also measure state of the world")
	fs.BoolVar(&o.tls, "tls", false, "connect by mutual TLS, and measure a mesh with policies")
	fs.BoolVar(&o.all, "all", false,
		"all of this, and also 50 endpoints for each service and a scoped mesh")
	if err := parse(fs, args); err != nil {
		return o, err
	}
	var err error
	if o.sizes, err = numbers(*proxies); err != nil {
		return o, fmt.Errorf("%w: -proxies %s: want numbers such as 200,1000", errUsage, *proxies)
	}
	return o, nil
}

func numbers(text string) ([]int, error) {
	var out []int
	for p := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(p)
		if err != nil {
			return nil, err
		}
		if n < 1 {
			return nil, strconv.ErrRange
		}
		out = append(out, n)
	}
	return out, nil
}

// setups returns what to measure.
func (o *options) setups() []setup {
	var out []setup
	if o.all || !o.tls {
		out = o.plaintext()
	}
	if o.all || o.tls {
		out = append(out, o.secure()...)
	}
	return out
}

func (o *options) plaintext() []setup {
	var out []setup
	for _, n := range o.sizes {
		out = append(out, setup{Shape: o.shape, Proxies: n, Delta: true})
		if o.sotw || o.all && n <= 200 {
			out = append(out, setup{Shape: o.shape, Proxies: n})
		}
	}
	if o.all {
		many, scoped := o.shape, o.shape
		many.Endpoints, scoped.Services, scoped.Scoped = 50, 2*o.shape.Services, true
		out = append(out, setup{Shape: many, Proxies: 200, Delta: true},
			setup{Shape: scoped, Proxies: 1000, Delta: true})
	}
	return out
}

// defaultPolicies is the number of policies in the mesh with policies, without the flag -policies.
const defaultPolicies = 200

func (o *options) secure() []setup {
	var out []setup
	for _, n := range o.sizes {
		out = append(out, setup{Shape: o.shape, Proxies: n, Delta: true, TLS: true})
	}
	if o.shape.Policies == 0 {
		strict := o.shape
		strict.Policies = defaultPolicies
		out = append(out, setup{Shape: strict, Proxies: o.sizes[0], Delta: true, TLS: true})
	}
	return out
}

// bench is one run of the comparison.
type bench struct {
	options
	self, work string
}

// measureAll measures what the arguments ask for and prints the tables.
func measureAll(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.ashored); err != nil {
		return fmt.Errorf("the program to measure (-ashored; \"make build\" builds it): %w", err)
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
	return errors.Join(b.compareAll(ctx, o.setups()), os.RemoveAll(work))
}

// say reports progress on standard error.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }
