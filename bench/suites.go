package main

import (
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
	joins         uint    // workloads that join at once; zero: none
	cluster       bool    // a large cluster of Kubernetes

	self, work string // this program, and a folder for what it writes
}

// parseFlags decides what is measured: what is named, or plaintext fleets when nothing is.
func parseFlags(args []string) (*bench, error) {
	fs, b := flag.NewFlagSet("bench", flag.ContinueOnError), &bench{}
	fs.IntVar(&b.shape.Services, "services", 1000, "services")
	fs.IntVar(&b.shape.Endpoints, "endpoints", 4, "endpoints a service")
	fs.IntVar(&b.shape.Namespaces, "namespaces", 10, "namespaces")
	fs.IntVar(&b.shape.Filters, "filters", 0, "EnvoyFilters")
	fs.BoolVar(&b.shape.Scoped, "scoped", false, "add a Sidecar to each namespace that imports only its own")
	fs.StringVar(&b.ashored, "ashored", "bin/ashored", "the control plane to measure")
	fs.StringVar(&b.write, "write", "", "Markdown file whose tables of results are replaced; empty: none")
	sizes := []int{200, 1000}
	fs.Func("proxies", "sizes of the fleet (default 200,1000)", func(text string) (err error) {
		sizes, err = parseSizes(text)
		return err
	})
	tls := fs.Bool("tls", false, "fleets that connect by mutual TLS, and one with policies")
	fs.UintVar(&b.joins, "joins", 0, "so many workloads join at once")
	fs.BoolVar(&b.cluster, "kubernetes", false, "a large cluster of Kubernetes")
	all := fs.Bool("all", false,
		"everything: also 50 endpoints a service, 100 EnvoyFilters, a scoped mesh, and all of the above")
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%w: %q is not a flag", errUsage, fs.Arg(0))
	}
	b.command = strings.TrimSpace("make bench ARGS=\"" + strings.Join(args, " ") + "\"")
	if *all || !*tls && b.joins == 0 && !b.cluster {
		b.plain = fleets(b.shape, sizes, false)
	}
	if *all || *tls {
		strict := b.shape
		strict.Policies = 200
		b.secure = append(fleets(b.shape, sizes, true), fleets(strict, sizes[:1], true)...)
	}
	if *all {
		many, filtered, scoped := b.shape, b.shape, b.shape
		many.Endpoints, filtered.Filters, scoped.Services, scoped.Scoped = 50, 100, 2*b.shape.Services, true
		b.plain = append(b.plain, setup{Shape: many, Proxies: 200}, setup{Shape: filtered, Proxies: 200},
			setup{Shape: scoped, Proxies: 1000})
		b.joins, b.cluster = max(b.joins, 1000), true
	}
	return b, nil
}

// fleets are fleets of several sizes in the same mesh.
func fleets(s fleet.Shape, sizes []int, tls bool) (out []setup) {
	for _, n := range sizes {
		out = append(out, setup{Shape: s, Proxies: n, TLS: tls})
	}
	return out
}

func parseSizes(text string) (sizes []int, err error) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, errors.New("want numbers such as 200,1000")
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
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
		{"results", len(b.plain) > 0, func(ctx context.Context) (string, error) { return b.compareAll(ctx, b.plain) }},
		{"mutual TLS", len(b.secure) > 0, func(ctx context.Context) (string, error) { return b.compareAll(ctx, b.secure) }},
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
