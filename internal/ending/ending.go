package ending

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Context returns a context that ends at the first SIGINT or SIGTERM. A second signal, also one
// right after it, ends the process. It is for main.
func Context() context.Context {
	ctx, end := context.WithCancel(context.Background())
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-got
		signal.Stop(got)
		end()
		select {
		case again := <-got: // it came before signal.Stop
			if s, ok := again.(syscall.Signal); ok {
				_ = syscall.Kill(os.Getpid(), s) // a process may always send to itself
			}
		default:
		}
	}()
	return ctx
}
