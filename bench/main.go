// Command bench measures ashored with a fleet of simulated Envoys, and compares it with the floor:
// the least that any control plane can cost for the same bytes, on the same machine in the same
// run.
//
//	bench                                   both at 200 and 1000 proxies, and the table of ratios
//	bench -tls                              the same by mutual TLS, and with policies
//	bench -certificates                     what issuing a certificate costs beside its cryptography
//	bench -joins 1000                       how long so many workloads need to join
//	bench -agent                            what an agent costs, and how soon it is ready from its cache
//	bench -all                              everything
//	bench gen   -dir D                      write a mesh as configuration files
//	bench run   -dir D -addr H:P -pid PID   measure a server that serves D
//	bench floor -dir D -record H:P          record what a server sends, and serve just that
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

// dispatch runs the named command; without a name, the comparison.
func dispatch(ctx context.Context, args []string) error {
	name := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if len(args) > 0 && args[0] == envoyFlag {
		return simulatedEnvoy(ctx, args)
	}
	switch name {
	case "":
		return measureAll(ctx, args)
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
