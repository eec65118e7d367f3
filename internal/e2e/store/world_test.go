package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
)

// port is where services listen in these tests.
const port = 8080

// service is a ServiceEntry with one endpoint, a document of its own.
func service(name, address string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: default}
spec:
  hosts: [%s.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http}]
  endpoints: [{address: %s}]
`, name, name, port, address)
}

// many are n services whose endpoint is address.
func many(n int, address string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(service(fmt.Sprintf("s%d", i), address))
	}
	return b.String()
}

// bench is a mesh with a folder for files that ashored does not read.
type bench struct {
	*harness.Mesh
	t   *testing.T
	dir string
}

func newBench(t *testing.T, files map[string]string, options ...harness.Option) *bench {
	return &bench{harness.New(t, files, options...), t, t.TempDir()}
}

// file writes a file and returns its path.
func (b *bench) file(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// ctl runs ashorectl and returns what it printed and its exit code.
func (b *bench) ctl(args ...string) (string, int) {
	b.t.Helper()
	out, code, err := harness.Command("ashorectl", append([]string{"--socket", b.Socket()}, args...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	return out, code
}

// want runs ashorectl and wants an exit code, and words in what it printed.
func (b *bench) want(code int, args string, words ...string) string {
	b.t.Helper()
	out, got := b.ctl(strings.Fields(args)...)
	if got != code {
		b.t.Fatalf("ashorectl %s: exit code %d, want %d:\n%s", args, got, code, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			b.t.Fatalf("ashorectl %s printed no %q:\n%s", args, w, out)
		}
	}
	return out
}

// running is a running ashorectl.
type running struct {
	cmd  *exec.Cmd
	wait func() error
	out  bytes.Buffer
}

// startCtl starts ashorectl.
func (b *bench) startCtl(args ...string) *running {
	b.t.Helper()
	r := &running{cmd: exec.Command(harness.Program("ashorectl"), append([]string{"--socket", b.Socket()}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	var err error
	if r.wait, err = testchild.Start(r.cmd); err != nil {
		b.t.Fatal(err)
	}
	return r
}

// end waits for its end and returns the exit code and what it printed.
func (r *running) end() (int, string) {
	_ = r.wait() // the exit code says it
	return r.cmd.ProcessState.ExitCode(), r.out.String()
}

func (r *running) interrupt() { _ = r.cmd.Process.Signal(syscall.SIGINT) } // an error says that it has ended

// addresses are the endpoints of all services in the store, and how many have each.
func (b *bench) addresses() map[string]int {
	b.t.Helper()
	found, err := admin.Send(b.t.Context(), b.Admin, admin.CallStored, admin.ObjectQuery{Kind: "serviceentry"})
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]int{}
	for _, o := range found {
		_, rest, _ := strings.Cut(strings.ReplaceAll(string(o.Spec), " ", ""), `"address":"`)
		address, _, _ := strings.Cut(rest, `"`)
		out[address]++
	}
	return out
}
