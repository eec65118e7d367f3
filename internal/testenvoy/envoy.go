package testenvoy

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ashore-mesh/ashore/internal/testchild"
)

// Path is the Envoy to test with: $ENVOY, or the one that "make tools" fetched. A test without one
// fails.
func Path(t testing.TB) string {
	t.Helper()
	return testchild.Tool(t, "ENVOY", "envoy")
}

// Start runs an Envoy of one thread with a bootstrap, YAML or JSON, and these flags, until kill is
// called or t ends. Its output is shown when t has failed.
func Start(t testing.TB, bootstrap []byte, flags ...string) (kill func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.yaml") // JSON is YAML
	if err := os.WriteFile(file, bootstrap, fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	return testchild.Run(t, exec.Command(Path(t),
		append([]string{"--config-path", file, "--disable-hot-restart", "--concurrency", "1"}, flags...)...))
}

// Admin asks the admin interface of an Envoy that has it at a unix socket. The host of what it is
// asked for means nothing.
func Admin(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
}
