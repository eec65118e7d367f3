// Command ashore-agent makes a workload a member of the mesh and runs the Envoy beside it: it gets
// and renews an identity, writes the bootstrap, supervises and drains Envoy, and shows the status.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/host"
	"github.com/ashore-mesh/ashore/internal/liblog"
)

func main() {
	libs := liblog.Own() // before anything of theirs is called
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal drains, and a second one ends it at once
	// A hangup is received and not acted on: there is nothing to reload, and a closed terminal does
	// not cut connections.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// The heap is mostly long-lived configuration: a low GC percentage saves memory at little CPU cost.
	debug.SetGCPercent(20)
	p := &program{logging: libs.Follow, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, host: host.This()}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// run runs a command line. Exit codes: 0 done, 1 failed, 2 wrong arguments or settings.
func (p *program) run(ctx context.Context, args []string) int {
	cmd := p.command()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotWell):
		return 1 // what was printed says it
	default:
		fmt.Fprintf(p.stderr, "ashore-agent: %v\n", err)
	}
	if isUsage(err) {
		return 2
	}
	return 1
}

// usageError is an error of the command line or of a settings file: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage marks err; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// isUsage says whether err is about the command line or the settings.
func isUsage(err error) bool {
	_, line := errors.AsType[usageError](err)
	_, setting := errors.AsType[*agent.UsageError](err)
	return line || setting
}
