package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// newFlags is an empty set of flags that reports errors instead of ending the program.
func newFlags(name string) *flag.FlagSet {
	return flag.NewFlagSet(name, flag.ContinueOnError)
}

func parse(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%w: %q is not a flag of %s", errUsage, fs.Arg(0), fs.Name())
	}
	return nil
}

// shapeFlags are the size of the mesh.
func shapeFlags(fs *flag.FlagSet, s *fleet.Shape) {
	fs.IntVar(&s.Services, "services", 1000, "services")
	fs.IntVar(&s.Endpoints, "endpoints", 4, "endpoints a service")
	fs.IntVar(&s.Namespaces, "namespaces", 10, "namespaces")
	fs.BoolVar(&s.Scoped, "scoped", false, "add a Sidecar to each namespace that imports only its own")
	fs.IntVar(&s.Policies, "policies", 0, "AuthorizationPolicies, with strict mutual TLS")
}

// authorityFlag is where the authority is whose certificates are presented.
func authorityFlag(fs *flag.FlagSet) *string {
	return fs.String("authority", "",
		"folder of the authority, as the setting ca.plugged has it, for mutual TLS; empty: plaintext")
}

// openAuthority is nil for an empty folder.
func openAuthority(ctx context.Context, dir string) (*fleet.Authority, error) {
	if dir == "" {
		return nil, nil
	}
	return fleet.OpenAuthority(ctx, dir)
}

func gen(args []string) error {
	fs := newFlags("gen")
	var shape fleet.Shape
	shapeFlags(fs, &shape)
	dir := fs.String("dir", "", "folder to write into")
	if err := parse(fs, args); err != nil {
		return err
	}
	if *dir == "" {
		return fmt.Errorf("%w: name the folder with -dir", errUsage)
	}
	return shape.Write(*dir)
}

// run measures one server and prints a fleet.Result as JSON; phases appear on standard error as
// they end.
func run(ctx context.Context, args []string) error {
	debug.SetGCPercent(400) // the load must stay far cheaper than the server
	fs := newFlags("run")
	var cfg fleet.RunConfig
	shapeFlags(fs, &cfg.Shape)
	fs.StringVar(&cfg.Dir, "dir", "", "folder that the server reads, from gen with the same numbers")
	fs.StringVar(&cfg.Addr, "addr", "127.0.0.1:15010", "ADS address")
	authority := authorityFlag(fs)
	fs.IntVar(&cfg.PID, "pid", 0, "process of the server, for its CPU time and memory")
	fs.IntVar(&cfg.Proxies, "proxies", 200, "simulated proxies")
	fs.BoolVar(&cfg.Delta, "delta", true, "delta xDS; false: state of the world")
	fs.DurationVar(&cfg.Timeout, "timeout", 120*time.Second, "longest wait of one phase")
	fs.IntVar(&cfg.Rounds, "rounds", 5, "rounds of each change")
	fs.IntVar(&cfg.Churn, "churn", 50, "endpoint changes in the churn phase, 100 ms apart")
	if err := parse(fs, args); err != nil {
		return err
	}
	if cfg.Dir == "" || cfg.PID == 0 {
		return fmt.Errorf("%w: name the folder with -dir and the server's process with -pid", errUsage)
	}
	var err error
	if cfg.Authority, err = openAuthority(ctx, *authority); err != nil {
		return err
	}
	cfg.Report = func(f fleet.Figures) {
		_, _ = fmt.Fprintf(os.Stderr, "    %-8s %6.3f CPU-s  %8.1f / %8.1f ms  %7.1f MB  %d missing\n", f.Phase,
			f.ServerCPU, f.P50ms, f.MaxMs, f.RSSMB, f.Missing)
	}
	result, err := fleet.Run(ctx, cfg)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// floor records a server, says so on one line, and serves what it recorded until it is ended.
func floor(ctx context.Context, args []string) error {
	fs := newFlags("floor")
	var shape fleet.Shape
	shapeFlags(fs, &shape)
	dir := fs.String("dir", "", "folder whose changes are sent")
	from := fs.String("record", "127.0.0.1:15010", "server to record from")
	listen := fs.String("listen", "127.0.0.1:16010", "address to serve on")
	authority := authorityFlag(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	if *dir == "" {
		return fmt.Errorf("%w: name the folder with -dir", errUsage)
	}
	a, err := openAuthority(ctx, *authority)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rec, err := fleet.Record(within, *from, shape, a)
	if err != nil {
		return err
	}
	sizes := rec.Sizes()
	for _, typ := range slices.Sorted(maps.Keys(sizes)) {
		_, _ = fmt.Fprintf(os.Stderr, "    recorded %8d bytes of %s\n", sizes[typ], typ)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen on %s (-listen): %w", *listen, err)
	}
	if _, err := fmt.Println("serving on", l.Addr()); err != nil {
		return err
	}
	return fleet.NewFloor(rec, a).Run(ctx, l, *dir)
}
