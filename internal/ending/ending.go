package ending

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Context ends at the first SIGINT or SIGTERM. By the time that anybody can see that it has, the
// next signal does what the system does with it, which is to end the process. It is for main.
func Context() context.Context {
	ctx, end := context.WithCancel(context.Background())
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-got
		signal.Stop(got)
		end()
		select {
		case again := <-got: // between the two
			if s, ok := again.(syscall.Signal); ok {
				_ = syscall.Kill(os.Getpid(), s) // it may always be sent to itself
			}
		default:
		}
	}()
	return ctx
}
