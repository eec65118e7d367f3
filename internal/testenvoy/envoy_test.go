package testenvoy

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An Envoy runs with what it is given, and has gone when it was killed.
func TestStart(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "envoy") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "admin")
	kill := Start(t, fmt.Appendf(nil, "admin: {address: {pipe: {path: %q}}}\n", socket), "--log-level", "warning")
	ready := func() bool {
		r, err := Admin(socket).Get("http://envoy/ready")
		return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
	}
	for end := time.Now().Add(20 * time.Second); !ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Envoy is not ready")
		}
	}
	kill()
	if ready() {
		t.Error("Envoy answers after it was killed")
	}
}
