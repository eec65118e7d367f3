package agent

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Who has the workload leave is answered, although the agent ends at once.
func TestLeaveIsAnswered(t *testing.T) {
	t.Parallel()
	state, err := os.MkdirTemp("", "leave") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	for range 5 {
		l, err := listenUnix(filepath.Join(state, "agent.sock"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		c := &control{log: hclog.NewNullLogger(), leave: func() {
			cancel()
			time.Sleep(5 * time.Millisecond) // the end begins meanwhile
		}}
		go func() { done <- c.Run(ctx, l) }()
		if _, err := askAgent(t.Context(), state, http.MethodPost, "/leave"); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
