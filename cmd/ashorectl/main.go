// Command ashorectl is the operator's tool: it asks a running ashored how everything is, over the
// admin socket, and checks configuration files without one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ashore-mesh/ashore/internal/ending"
)

// The exit codes, as the help text says them.
const (
	exitFailed = 1 // it did not work, or what was asked about has errors
	exitUsage  = 2 // the command line makes no sense
)

// errFound says that the command worked and what it reports is an error; it is on the screen
// already.
var errFound = errors.New("errors were found")

func main() {
	os.Exit(run(ending.Context(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings passed in; it returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	err := cmd.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFound):
		return exitFailed
	case errors.As(err, &usage):
		complain(errOut, "%v\nSee \"%s --help\".", err, usage.command)
		return exitUsage
	default:
		complain(errOut, "%v", err)
		return exitFailed
	}
}

// complain writes one message to standard error. There is nowhere to tell that this failed.
func complain(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintln(w, "ashorectl: "+printableLines(fmt.Sprintf(format, args...)))
}
