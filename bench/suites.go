package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

var errUsage = errors.New("wrong usage")

// bench is what is measured, and of which programs.
type bench struct {
	ashored string
	write   string
	command string
	shape   fleet.Shape

	plain, secure []setup // fleets
	joins         int     // workloads that join at once; zero: none
	cluster       bool    // a large cluster of Kubernetes
	filters       int     // EnvoyFilters of a further plaintext fleet; zero: no such fleet

	self, work string // this program, and a folder for what it writes
}

// parseFlags decides what is measured: what is named, or plaintext fleets when nothing is.
func parseFlags(args []string) (*bench, error) {
	fs, b := flag.NewFlagSet("bench", flag.ContinueOnError), &bench{}
	fs.IntVar(&b.shape.Services, "services", 1000, "services")
	fs.IntVar(&b.shape.Endpoints, "endpoints", 4, "endpoints a service")
	fs.IntVar(&b.shape.Namespaces, "namespaces", 10, "namespaces")
	fs.BoolVar(&b.shape.Scoped, "scoped", false, "add a Sidecar to each namespace that imports only its own")
	fs.StringVar(&b.ashored, "ashored", "bin/ashored", "the control plane to measure")
	fs.StringVar(&b.write, "write", "", "Markdown file whose tables of results are replaced; empty: none")
	proxies := fs.String("proxies", "200,1000", "sizes of the fleet")
	tls := fs.Bool("tls", false, "fleets that connect by mutual TLS, and one with policies")
	fs.IntVar(&b.joins, "joins", 0, "so many workloads join at once")
	fs.BoolVar(&b.cluster, "kubernetes", false, "a large cluster of Kubernetes")
	fs.IntVar(&b.filters, "filters", 0, "add a plaintext fleet with so many EnvoyFilters")
	all := fs.Bool("all", false,
		"everything: also 100 EnvoyFilters, 50 endpoints a service, a scoped mesh, and all of the above")
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%w: %q is not a flag", errUsage, fs.Arg(0))
	}
	b.command = strings.TrimSpace("make bench ARGS=\"" + strings.Join(args, " ") + "\"")
	var sizes []int
	for p := range strings.SplitSeq(*proxies, ",") {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%w: -proxies %s: want numbers such as 200,1000", errUsage, *proxies)
		}
		sizes = append(sizes, n)
	}
	if b.joins < 0 {
		return nil, fmt.Errorf("%w: -joins %d: want a number such as 1000", errUsage, b.joins)
	}
	named := *tls || b.joins > 0 || b.cluster
	if *all {
		*tls, b.cluster, b.filters = true, true, cmp.Or(b.filters, 100)
		if b.joins == 0 {
			b.joins = 1000
		}
	}
	if *tls {
		b.secureSetups(sizes)
	}
	if *all || !named {
		b.plainSetups(sizes, *all)
	}
	return b, nil
}

func (b *bench) plainSetups(sizes []int, all bool) {
	for _, n := range sizes {
		b.plain = append(b.plain, setup{Shape: b.shape, Proxies: n})
	}
	if b.filters > 0 {
		patched := b.shape
		patched.Filters = b.filters
		b.plain = append(b.plain, setup{Shape: patched, Proxies: sizes[len(sizes)-1]})
	}
	if all {
		many, scoped := b.shape, b.shape
		many.Endpoints, scoped.Services, scoped.Scoped = 50, 2*b.shape.Services, true
		b.plain = append(b.plain, setup{Shape: many, Proxies: 200}, setup{Shape: scoped, Proxies: 1000})
	}
}

// policies is how many the fleet with policies has.
const policies = 200

func (b *bench) secureSetups(sizes []int) {
	for _, n := range sizes {
		b.secure = append(b.secure, setup{Shape: b.shape, Proxies: n, TLS: true})
	}
	judged := b.shape
	judged.Policies = policies
	b.secure = append(b.secure, setup{Shape: judged, Proxies: sizes[0], TLS: true})
}

// measureAll measures what the arguments say and prints, and maybe writes, the tables.
func measureAll(ctx context.Context, args []string) error {
	b, err := parseFlags(args)
	if err != nil {
		return err
	}
	if _, err := os.Stat(b.ashored); err != nil {
		return fmt.Errorf("the program to measure (-ashored; \"make build\" makes it): %w", err)
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	return errors.Join(b.suites(ctx), os.RemoveAll(b.work))
}

// suites measures one after the other. What was measured is printed at once, so it is not lost when
// a later suite fails.
func (b *bench) suites(ctx context.Context) error {
	for _, suite := range []struct {
		name    string
		wanted  bool
		measure func(context.Context) (string, error)
	}{
		{"results", len(b.plain) > 0, func(ctx context.Context) (string, error) { return b.fleets(ctx, b.plain) }},
		{"mutual TLS", len(b.secure) > 0, func(ctx context.Context) (string, error) { return b.fleets(ctx, b.secure) }},
		{"joins", b.joins > 0, b.join},
		{"Kubernetes", b.cluster, b.kubernetes},
	} {
		if !suite.wanted {
			continue
		}
		text, err := suite.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", suite.name, err)
		}
		if _, err := fmt.Print("\n", text); err != nil {
			return err
		}
		if b.write != "" {
			if err := writeTable(b.write, suite.name, b.command, machine(), text); err != nil {
				return err
			}
		}
	}
	return nil
}
