package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// A start that takes long is told in the log, with what it waits for, again and again until it is
// over.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out testlog.Text
		var served atomic.Bool
		waiting := func() []string {
			if served.Load() {
				return nil
			}
			return []string{"mcp:never (setting sources[1].required, ashored.yaml:4)"}
		}
		p := &patience{waiting: waiting, log: hclog.New(&hclog.LoggerOptions{Output: &out})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx) }()
		told := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := strings.Count(out.String(), "sources[1].required"); n != want {
				t.Errorf("told %d times, want %d:\n%s", n, want, &out)
			}
		}
		told(9*time.Second, 0)
		told(2*time.Second, 1)
		told(time.Minute, 2)
		served.Store(true)
		told(10*time.Minute, 2)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
