package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// options are what is measured, and of which programs.
type options struct {
	ashored, agent, envoy string
	write                 string
	strict                bool
	command               string

	plain, secure []setup // fleets
	build         bool    // Go benchmarks of building a context
	certificates  bool    // Go benchmarks of issuing
	joins         int     // workloads that join at once; zero: none
	agents        bool    // what an agent costs
	idle          time.Duration
	shape         fleet.Shape
}

// choices are the flags that say what is measured.
type choices struct {
	proxies                             string
	sotw, all, tls, build, certs, agent bool
	joins                               int
}

func parseOptions(args []string) (options, error) {
	fs := newFlags("bench")
	var o options
	var c choices
	shapeFlags(fs, &o.shape)
	fs.StringVar(&o.ashored, "ashored", "bin/ashored", "the control plane to measure")
	fs.StringVar(&o.agent, "ashore-agent", "bin/ashore-agent", "the agent to measure")
	fs.StringVar(&o.envoy, "envoy", ".tools/envoy", "the Envoy that the agent runs")
	fs.StringVar(&o.write, "write", "", "Markdown file whose tables of results are replaced; empty: none")
	fs.BoolVar(&o.strict, "strict", false, "end with an error when a target is missed")
	fs.StringVar(&c.proxies, "proxies", "200,1000", "sizes of the fleet")
	fs.BoolVar(&c.build, "build", true, "beside plaintext fleets, also the Go benchmarks of building a context")
	fs.BoolVar(&c.sotw, "sotw", false, "measure state of the world beside delta too")
	fs.BoolVar(&c.tls, "tls", false, "fleets that connect by mutual TLS, and one with policies")
	fs.BoolVar(&c.certs, "certificates", false, "what issuing a certificate costs")
	fs.IntVar(&c.joins, "joins", 0, "so many workloads join at once")
	fs.BoolVar(&c.agent, "agent", false, "what an agent costs")
	fs.DurationVar(&o.idle, "idle", time.Minute, "how long an idle agent is looked at")
	fs.BoolVar(&c.all, "all", false,
		"everything: also state of the world, 50 endpoints a service, a scoped mesh, and all of the above")
	if err := parse(fs, args); err != nil {
		return o, err
	}
	o.command = strings.TrimSpace("make bench ARGS=\"" + strings.Join(args, " ") + "\"")
	return o, o.choose(c)
}

// choose decides what is measured: what is named, or plaintext fleets when nothing is.
func (o *options) choose(c choices) error {
	sizes, err := numbers(c.proxies)
	if err != nil {
		return fmt.Errorf("%w: -proxies %s: want numbers such as 200,1000", errUsage, c.proxies)
	}
	if c.joins < 0 {
		return fmt.Errorf("%w: -joins %d: want a number such as 1000", errUsage, c.joins)
	}
	o.joins, o.agents, o.certificates = c.joins, c.agent || c.all, c.certs || c.all
	if o.joins == 0 && c.all {
		o.joins = 1000
	}
	if c.tls || c.all {
		o.secure = o.secureSetups(sizes)
	}
	if c.all || !c.tls && !c.agent && !c.certs && c.joins == 0 {
		o.plain, o.build = o.plainSetups(c, sizes), c.build
	}
	return nil
}

func numbers(text string) ([]int, error) {
	var out []int
	for _, p := range strings.Split(text, ",") {
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

func (o *options) plainSetups(c choices, sizes []int) []setup {
	var out []setup
	for _, n := range sizes {
		out = append(out, setup{Shape: o.shape, Proxies: n, Delta: true})
		if c.sotw || c.all && n <= 200 {
			out = append(out, setup{Shape: o.shape, Proxies: n})
		}
	}
	if c.all {
		many, scoped := o.shape, o.shape
		many.Endpoints, scoped.Services, scoped.Scoped = 50, 2*o.shape.Services, true
		out = append(out, setup{Shape: many, Proxies: 200, Delta: true},
			setup{Shape: scoped, Proxies: 1000, Delta: true})
	}
	return out
}

// policies is how many there are where none are asked for.
const policies = 200

func (o *options) secureSetups(sizes []int) []setup {
	var out []setup
	for _, n := range sizes {
		out = append(out, setup{Shape: o.shape, Proxies: n, Delta: true, TLS: true})
	}
	if o.shape.Policies == 0 {
		judged := o.shape
		judged.Policies = policies
		out = append(out, setup{Shape: judged, Proxies: sizes[0], Delta: true, TLS: true})
	}
	return out
}

// bench measures while it works.
type bench struct {
	options
	self, work string
}

// section is the outcome of one kind of measurement: where it stands in a file of results, its
// table, and how many targets it misses.
type section struct {
	mark   string
	text   string
	missed int
}

// measureAll measures what the arguments say and prints, and maybe writes, the tables.
func measureAll(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
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
	return errors.Join(b.all(ctx), os.RemoveAll(work))
}

func (b *bench) all(ctx context.Context) error {
	missed := 0
	for _, m := range []struct {
		mark    string
		wanted  bool
		measure func(context.Context) (section, error)
	}{
		{"results", len(b.plain) > 0, b.plaintext},
		{"mutual TLS", len(b.secure) > 0, func(ctx context.Context) (section,
			error) {
			return b.compareAll(ctx, b.secure)
		}},
		{"certificates", b.certificates, certificates},
		{"joins", b.joins > 0, b.join},
		{"agent", b.agents, b.agentCost},
	} {
		if !m.wanted {
			continue
		}
		s, err := m.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", m.mark, err)
		}
		s.mark = m.mark
		missed += s.missed
		if err := b.publish(s); err != nil {
			return err
		}
	}
	if missed > 0 && b.strict {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

// publish prints a table, and writes it where it is asked for: what was measured is not lost when a
// later measurement fails.
func (b *bench) publish(s section) error {
	if _, err := fmt.Print("\n", s.text); err != nil || b.write == "" {
		return err
	}
	return writeTable(b.write, s.mark, b.command, machine(), s.text)
}

// plaintext measures the fleets without TLS, and building a context.
func (b *bench) plaintext(ctx context.Context) (section, error) {
	out, err := b.compareAll(ctx, b.plain)
	if err != nil || !b.build {
		return out, err
	}
	say("\nbuilding a context")
	table, missed, err := goBench(ctx)
	return section{text: out.text + table, missed: out.missed + missed}, err
}

// say tells how far it is. There is nowhere to tell that this failed.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }
