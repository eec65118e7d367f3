package testchild

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Tool returns the path of a program to test with: that of an environment variable, or the one that
// "make tools" puts below the folder of go.mod. A test without the program fails.
func Tool(t testing.TB, variable, name string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		root, err := filepath.Abs(".")
		for err == nil {
			if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil || root == "/" {
				break
			}
			root = filepath.Dir(root)
		}
		path = filepath.Join(root, ".tools", name)
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("no %s for this test: run \"make tools\", or set %s: %v", name, variable, err)
	}
	return path
}

// maxShown is how much is shown of the output of a program, in bytes.
const maxShown = 16 << 10

// Run starts cmd, which has to run until kill is called or t ends. Its output is shown if t has
// failed.
func Run(t testing.TB, cmd *exec.Cmd) (kill func()) {
	t.Helper()
	name := filepath.Base(cmd.Path)
	var out bytes.Buffer // read when the program has ended
	cmd.Stdout, cmd.Stderr = &out, &out
	wait, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("%s had ended by itself: %v", name, err)
		}
		if exit := (*exec.ExitError)(nil); !errors.As(wait(), &exit) {
			t.Errorf("%s ended well before it was killed", name)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, out.Bytes()[max(0, out.Len()-maxShown):])
		}
	})
	t.Cleanup(kill)
	return kill
}
