// Command quickstart runs a small mesh on this machine, without root, to look at and to play with:
// a control plane, a frontend and two versions of a backend, each with its own Envoy. "make run"
// starts it.
//
// Every workload joins as on a machine of its own: with the line that "ashorectl join-token create"
// prints. It gets an identity, and speaks mutual TLS with the others.
//
// It uses a copy of its configuration in the folder .run, and prints what runs where and what to
// try. It restarts ashored when that is killed, and stops everything at Ctrl-C. Each run has a new
// authority, new identities and a new copy of the configuration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute is the program: exit code 0 done, 1 something went wrong, 2 wrong usage.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "quickstart:", err)
		return 2
	}
	if err := newMesh(o, stdout).Run(ctx); err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
		return 1
	}
	return 0
}

// options are the command line.
type options struct {
	// programs is the folder of ashored, ashore-agent and ashorectl.
	programs string
	// echo and envoy are programs.
	echo, envoy string
	// example is the folder of the configuration that is copied.
	example string
	// dir is the folder that everything is written to.
	dir string
	// network is the front of the workloads' addresses.
	network string
	// extras is the folder of what experiments add to the configuration.
	extras string
	// xds and metrics are ashored's addresses.
	xds, metrics string
}

func parse(args []string, help io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	fs.SetOutput(help)
	fs.StringVar(&o.programs, "programs", "bin", "`folder` of ashored, ashore-agent and ashorectl")
	fs.StringVar(&o.echo, "echo", filepath.Join(".tools", "echo"), "the echo `program`")
	fs.StringVar(&o.envoy, "envoy", "", "the Envoy `program` (default: $ENVOY, else .tools/envoy)")
	fs.StringVar(&o.example, "example", filepath.Join("examples", "quickstart", "config"),
		"`folder` of the configuration")
	fs.StringVar(&o.extras, "experiments", filepath.Join("examples", "quickstart", "experiments"),
		"`folder` of what experiments add to it")
	fs.StringVar(&o.dir, "dir", ".run", "`folder` for the copy of the configuration, state and logs")
	fs.StringVar(&o.network, "network", "127.0.0",
		"front of the workloads' `addresses`; ashored has --xds-address and --metrics-address")
	fs.StringVar(&o.xds, "xds-address", "127.0.0.1:15012", "`address` of ashored's xDS and certificate authority")
	fs.StringVar(&o.metrics, "metrics-address", "127.0.0.1:15014", "`address` of ashored's metrics and readiness")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see --help", fs.Arg(0))
	}
	if strings.Count(o.network, ".") != 2 || !strings.HasPrefix(o.network, "127.") {
		return o, fmt.Errorf("--network %q is not three numbers of loopback addresses, such as 127.0.7", o.network)
	}
	if o.envoy == "" {
		o.envoy = os.Getenv("ENVOY")
	}
	if o.envoy == "" {
		o.envoy = filepath.Join(".tools", "envoy")
	}
	return o, nil
}
