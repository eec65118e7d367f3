// Command ashorectl is the operator's command line. It talks to the admin socket of a running
// ashored, and checks configuration files without one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes. Source: docs/ashorectl.md.
const (
	exitFailed = 1 // the command failed, or what it reports has errors
	exitUsage  = 2 // the command line is invalid; "diff" failed
)

// codedError is an error with an exit code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// errFound means that the command worked and has printed errors of the configuration.
var errFound = errors.New("errors were found")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	err := cmd.ExecuteContext(ctx)
	var usage *usageError
	var coded *codedError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFound):
		return exitFailed
	case errors.As(err, &usage):
		printError(errOut, fmt.Sprintf("%v\nSee \"%s --help\".", err, usage.command))
		return exitUsage
	case errors.As(err, &coded):
		printError(errOut, err.Error())
		return coded.code
	default:
		printError(errOut, err.Error())
		return exitFailed
	}
}

func printError(w io.Writer, text string) {
	_, _ = fmt.Fprintln(w, "ashorectl: "+printableLines(text)) // an error of standard error has no place to go
}
