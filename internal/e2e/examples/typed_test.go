package examples

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// The commands of each README print what it promises, and leave nothing behind. Only addresses and
// the folder for temporary files are others here, so that several may run at once; the programs
// have been built.
func TestTyped(t *testing.T) {
	t.Parallel()
	partner := fmt.Sprint(testport.Free(t))
	for name, c := range map[string]struct {
		// pairs are further replacements, of what is not an address of the example's own network.
		pairs []string
		// sees are what is printed, in this order.
		sees []string
	}{
		"canary":  {nil, []string{`"version": "v1"`, `"version": "v2"`, `"requests": 2`, "504 Gateway Timeout", strings.Repeat("200 ", 20), "failed_outlier_check"}},
		"consul":  {nil, []string{`"one"`, `"two"`, "ok", "consul", "no healthy upstream", `"two"`, "ashore-exported-by", "cannot be reached", `"one"`}},
		"egress":  {[]string{"127.0.0.1:8090", "127.0.0.1:" + partner, "targetPort: 8090", "targetPort: " + partner}, []string{`200 OK`, `"partner"`, "502 Bad Gateway", "502 Bad Gateway", "200 OK", `"ledger"`}},
		"gateway": {nil, []string{`"docs"`, "301 Moved Permanently", "location: https://shop.example.com/cart", "404 Not Found", `"shop"`, `"docs"`, `"/returns"`}},
		"mcp":     {nil, []string{`"name"`, "mcp:central", `"one"`, `"one"`, `"one"`, `"one"`, "check that it runs", `"one"`}},
		"policies": {nil, []string{"200 OK", "403 Forbidden", "403 Forbidden", "200 OK", "ann", "401 Unauthorized", "403 Forbidden",
			"ALLOWED", "DENIED", "DENIED", "200 OK"}},
		"store": {nil, []string{"revision 1: 2 created", `"one"`, "+    - address: ", "nothing was written (--dry-run)", "revision 2: 1 changed, 1 unchanged", `"two"`,
			"spec.http[0].timeout", "revision 3: 1 changed", `"one"`, `"one"`, "store", "revision 3"}},
		"webhook": {nil, []string{`web.yaml:9: VirtualService shop/web`, `did you mean "host"?`, "exit code 1", "exit code 0", "2 objects in 2 files: no problems", `"allowed": false`, "spec.http[0].timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t, name, c.pairs)
			out := s.run(s.typed())
			rest := out
			for _, want := range c.sees {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("%q is not printed, or not in its place; all that was:\n%s", want, out)
				}
				rest = after
			}
			if left, err := filepath.Glob(filepath.Join(s.temp, "*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// shell is a copy of the repository's folder, as far as an example needs it, and who types there.
type shell struct {
	t               *testing.T
	name, dir, temp string
	replace         *strings.Replacer
}

func newShell(t *testing.T, name string, pairs []string) *shell {
	t.Helper()
	temp, err := os.MkdirTemp("", "typed") // short: the path of a socket has a bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(temp); err != nil {
			t.Error(err)
		}
	})
	subnet := harness.FreeSubnet(t)
	s := &shell{t: t, name: name, dir: t.TempDir(), temp: temp,
		replace: strings.NewReplacer(append(pairs, "/tmp/ashore-", temp+"/ashore-", network, subnet,
			"bin/ashored --dev ", fmt.Sprintf("bin/ashored --dev --set xds.plaintextAddress=%s1:15010 --set metrics.address=%[1]s1:15014 ", subnet))...)}
	s.link("bin/ashored", harness.Program("ashored"))
	s.link("bin/ashore-agent", harness.Program("ashore-agent"))
	s.link("bin/ashorectl", harness.Program("ashorectl"))
	s.link(".tools/envoy", testenvoy.Path(t))
	s.link(".tools/consul", testconsul.Path(t))
	s.link(".tools/echo", harness.Build(t, "examples/echo"))
	s.copy()
	return s
}

// link has a file of the folder be another one.
func (s *shell) link(name, path string) {
	s.t.Helper()
	at := filepath.Join(s.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.Symlink(path, at)); err != nil {
		s.t.Fatal(err)
	}
}

// copy brings the example's files into the folder.
func (s *shell) copy() {
	s.t.Helper()
	from := filepath.Join("..", "..", "..", "examples", s.name)
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		to := filepath.Join(s.dir, "examples", s.name, rel)
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o700),
			os.WriteFile(to, []byte(s.replace.Replace(string(data))), info.Mode()))
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// typed are the commands of the README, without the one that builds the programs.
func (s *shell) typed() string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "examples", s.name, "README.md"))
	if err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for _, part := range strings.Split(string(data), "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		out.WriteString(block + "\n")
	}
	build, rest, _ := strings.Cut(out.String(), "\n")
	if !strings.HasPrefix(build, "make build") {
		s.t.Fatalf("the first command is %q, want one that builds the programs", build)
	}
	return rest
}

// typing is how long one example may take.
const typing = 2 * time.Minute

// run has commands typed, and returns what they and what they started printed, but for logs.
func (s *shell) run(commands string) string {
	s.t.Helper()
	cmd := exec.Command("bash", "-c", commands)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logs
	cmd.WaitDelay = time.Second // a program that is left holds the output open
	wait, err := testchild.Start(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err = <-ended:
	case <-time.After(typing):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // all of it
		err = errors.Join(fmt.Errorf("it did not end within %v", typing), <-ended)
	}
	if syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) == nil {
		err = errors.Join(err, errors.New("programs are left running"))
	}
	if err != nil {
		s.t.Fatalf("%v; it printed\n%s\nand logged\n%.20000s", err, out.String(), logs.String())
	}
	return out.String()
}
