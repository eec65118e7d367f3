// Command ashored is the control plane: it reads configuration and services, and configures Envoys
// over xDS.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/liblog"
)

// The exit codes; the help text lists them.
const (
	exitFailed = 1 // it could not start, or a part failed
	exitUsage  = 2 // the command line or the settings file makes no sense
)

// usageError is a command line or a settings file that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// loggedError is an error that was logged.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// arguments returns a check of arguments whose errors are of usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usage(check(cmd, args)) }
}

func main() {
	libs := liblog.Own() // before anything of theirs is called
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal ends it in order, and a second one at once
	// A hangup never ends the mesh, as when a terminal is closed; while it serves, the settings are
	// read anew.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(execute(ctx, newRoot(libs.Follow), os.Args[1:], os.Stdout, os.Stderr))
}

// execute is main with its surroundings passed in; it returns the exit code.
func execute(ctx context.Context, cmd *cobra.Command, args []string, out, errOut io.Writer) int {
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usageError{}):
		_, _ = fmt.Fprintf(errOut, "ashored: %v\nSee \"ashored --help\".\n", err)
		return exitUsage
	case errors.As(err, &loggedError{}): // plain text among log lines in JSON could not be parsed
		return exitFailed
	default:
		_, _ = fmt.Fprintf(errOut, "ashored: %v\n", err)
		return exitFailed
	}
}
