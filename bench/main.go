// Command bench measures ashored with a fleet of simulated Envoys. It compares ashored with the
// floor: the least that any control plane can cost for the same bytes, on the same machine, in the
// same run.
//
//	bench                                   both at 200 and 1000 proxies, and the table of ratios
//	bench -tls                              the same by mutual TLS, and with policies
//	bench -certificates                     what issuing a certificate costs, compared with its cryptography
//	bench -joins 1000                       how long so many workloads need to join
//	bench -all                              everything
//	bench gen   -dir D                      write a mesh as configuration files
//	bench run   -dir D -addr H:P -pid PID   measure a server that serves D
//	bench floor -dir D -record H:P          record what a server sends, and serve just that
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, os.Args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

// dispatch runs the named command; without a name, the suites.
func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] == "" || args[0][0] == '-' {
		return measureAll(ctx, args)
	}
	switch name, args := args[0], args[1:]; name {
	case "gen":
		return gen(args)
	case "run":
		return run(ctx, args)
	case "floor":
		return floor(ctx, args)
	default:
		return fmt.Errorf("%w: unknown command %q: known are gen, run and floor", errUsage, name)
	}
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

// mesh is a mesh that is measured, and where it is.
type mesh struct {
	fleet.Shape
	dir string // of the configuration files
	// authority is the folder of the authority that signs for it, as the setting ca.plugged has it.
	// Empty: plaintext.
	authority string
}

// shapeFlags are the size of a mesh.
func shapeFlags(fs *flag.FlagSet, s *fleet.Shape) {
	fs.IntVar(&s.Services, "services", 1000, "services")
	fs.IntVar(&s.Endpoints, "endpoints", 4, "endpoints a service")
	fs.IntVar(&s.Namespaces, "namespaces", 10, "namespaces")
	fs.BoolVar(&s.Scoped, "scoped", false, "add a Sidecar to each namespace that imports only its own")
	fs.IntVar(&s.Policies, "policies", 0, "AuthorizationPolicies, with strict mutual TLS")
}

// meshFlags are the flags of a command about a mesh, which args returns.
func meshFlags(name string) (*flag.FlagSet, *mesh) {
	fs, m := flag.NewFlagSet(name, flag.ContinueOnError), &mesh{}
	shapeFlags(fs, &m.Shape)
	fs.StringVar(&m.dir, "dir", "", "folder of the mesh's configuration files")
	fs.StringVar(&m.authority, "authority", "",
		"folder of the authority, as the setting ca.plugged has it, for mutual TLS; empty: plaintext")
	return fs, m
}

// args are the flags that describe m to a command.
func (m *mesh) args() []string {
	return []string{"-dir", m.dir, "-authority", m.authority, fmt.Sprint("-services=", m.Services),
		fmt.Sprint("-endpoints=", m.Endpoints), fmt.Sprint("-namespaces=", m.Namespaces),
		fmt.Sprint("-scoped=", m.Scoped), fmt.Sprint("-policies=", m.Policies)}
}

// open reads the authority; nil without one.
func (m *mesh) open(ctx context.Context) (*fleet.Authority, error) {
	if m.dir == "" {
		return nil, fmt.Errorf("%w: name the folder with -dir", errUsage)
	}
	if m.authority == "" {
		return nil, nil
	}
	return fleet.OpenAuthority(ctx, m.authority)
}

func gen(args []string) error {
	fs, m := meshFlags("gen")
	if err := parse(fs, args); err != nil {
		return err
	}
	if m.dir == "" {
		return fmt.Errorf("%w: name the folder with -dir", errUsage)
	}
	return m.Write(m.dir)
}

// run measures one server and prints a fleet.Result as JSON. Phases appear on standard error as
// they end.
func run(ctx context.Context, args []string) error {
	debug.SetGCPercent(400) // the load must stay far cheaper than the server
	fs, m := meshFlags("run")
	cfg := fleet.RunConfig{Rounds: 5, Churn: 50, Timeout: 2 * time.Minute}
	fs.StringVar(&cfg.Addr, "addr", "127.0.0.1:15010", "ADS address")
	fs.IntVar(&cfg.PID, "pid", 0, "process of the server, for its CPU time and memory")
	fs.IntVar(&cfg.Proxies, "proxies", 200, "simulated proxies")
	fs.BoolVar(&cfg.Delta, "delta", true, "delta xDS; false: state of the world")
	if err := parse(fs, args); err != nil {
		return err
	}
	if cfg.PID == 0 {
		return fmt.Errorf("%w: name the server's process with -pid", errUsage)
	}
	var err error
	if cfg.Authority, err = m.open(ctx); err != nil {
		return err
	}
	cfg.Shape, cfg.Dir = m.Shape, m.dir
	cfg.Report = func(f fleet.Figures) {
		say("    %-8s %6.3f CPU-s  %8.1f / %8.1f ms  %7.1f MB  %d missing", f.Phase, f.ServerCPU, f.P50ms, f.MaxMs,
			f.RSSMB, f.Missing)
	}
	result, err := fleet.Run(ctx, cfg)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// floor records a server, says so on one line, and serves what it recorded until it is ended.
func floor(ctx context.Context, args []string) error {
	fs, m := meshFlags("floor")
	from := fs.String("record", "127.0.0.1:15010", "server to record from")
	listen := fs.String("listen", "127.0.0.1:16010", "address to serve on")
	if err := parse(fs, args); err != nil {
		return err
	}
	a, err := m.open(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rec, err := fleet.Record(within, *from, m.Shape, a)
	if err != nil {
		return err
	}
	sizes := rec.Sizes()
	for _, typ := range slices.Sorted(maps.Keys(sizes)) {
		say("    recorded %8d bytes of %s", sizes[typ], typ)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen on %s (-listen): %w", *listen, err)
	}
	if _, err := fmt.Println(servingOn, l.Addr()); err != nil {
		return err
	}
	return fleet.NewFloor(rec, a).Run(ctx, l, m.dir)
}

// servingOn begins the line by which a floor says that it serves.
const servingOn = "serving on"

// say tells how far it is. There is nowhere to tell that this failed.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }
