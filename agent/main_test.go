package agent

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/testport"
)

// TestMain waits for other runs of these tests: agents have ports that are given, at addresses that
// the tests have to name.
func TestMain(m *testing.M) {
	if file := os.Getenv(agentOf); file != "" {
		panic(runAgentProcess(file)) // it is killed
	}
	lock, err := testport.Alone("agent")
	if err != nil {
		panic(err)
	}
	defer lock.Close() //nolint:errcheck // the end of the process does
	goleak.VerifyTestMain(m)
}

// example is a workload's settings, complete, with the given address.
func example(t *testing.T, address string, edit func(*Settings)) Settings {
	t.Helper()
	s := Default()
	s.Dev = true
	s.State = stateFolder(t)
	s.Workload.Name = "web-1"
	s.Workload.Namespace = "shop"
	s.Workload.Addresses = []string{address}
	s.Workload.Labels = map[string]string{"app": "web", "version": "v1"}
	s.XDS.Addresses = []string{"127.0.0.1:15010"}
	if edit != nil {
		edit(&s)
	}
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	return s
}

// stateFolder is short: t.TempDir's may not fit into a socket's address.
func stateFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// contextUntil is a context that ends soon after done says true, or with the test.
func contextUntil(t *testing.T, done func() bool) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if done() {
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	return ctx, func() {
		cancel()
		wg.Wait()
	}
}
