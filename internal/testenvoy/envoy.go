package testenvoy

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/testchild"
)

// Path is the Envoy to test with: $ENVOY, or the one that "make tools" fetched. A test without one
// fails.
func Path(t testing.TB) string {
	t.Helper()
	path := os.Getenv("ENVOY")
	var err error
	if path == "" {
		path, err = fetched()
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("no Envoy for this test: run \"make tools\", or set ENVOY: %v", err)
	}
	return path
}

// fetched is where "make tools" puts it: below the folder of go.mod, which is above the test.
func fetched() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".tools", "envoy"), nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("there is no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// maxShown is how much is shown of what an Envoy said, in bytes.
const maxShown = 16 << 10

// Start runs an Envoy of one thread with a bootstrap, YAML or JSON, and these flags, until kill is
// called or t ends. What it said is shown when t has failed.
func Start(t testing.TB, bootstrap []byte, flags ...string) (kill func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.yaml") // JSON is YAML
	if err := os.WriteFile(file, bootstrap, fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(Path(t), append([]string{"--config-path", file, "--disable-hot-restart", "--concurrency", "1"},
		flags...)...)
	var out bytes.Buffer // read when Envoy has ended
	cmd.Stdout, cmd.Stderr = &out, &out
	wait, err := testchild.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("envoy had ended by itself: %v", err)
		}
		if exit := (*exec.ExitError)(nil); !errors.As(wait(), &exit) { // it was killed
			t.Error("envoy ended well before it was killed")
		}
		if t.Failed() {
			said := out.Bytes()
			t.Logf("envoy said:\n%s", said[max(0, len(said)-maxShown):])
		}
	})
	t.Cleanup(kill)
	return kill
}

// Admin asks the admin interface of an Envoy that has it at a unix socket. The host of what it is
// asked for means nothing.
func Admin(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
}
