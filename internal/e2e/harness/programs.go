package harness

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// programs is the folder of the programs under test, set by Main before any test runs.
var programs string

// Program is the path of one of the programs under test.
func Program(name string) string { return filepath.Join(programs, name) }

// Build builds another program of the module, "examples/echo", and returns its path.
func Build(t testing.TB, folder string) string {
	t.Helper()
	if err := build(folder); err != nil {
		t.Fatal(err)
	}
	return Program(filepath.Base(folder))
}

// build builds programs of the module.
func build(folders ...string) error {
	args := []string{"build", "-o", programs + "/"}
	for _, f := range folders {
		args = append(args, "github.com/ashore-mesh/ashore/"+f)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folders, err, out)
	}
	return nil
}

// together is how many tests of a package run at a time, unless -parallel is given. Most of the time
// they wait.
const together = "6"

// Main builds the programs, runs the tests of a package and checks that no goroutine is left. Call
// it from TestMain.
func Main(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", together); err != nil {
			panic(err) // the flag exists, and its value is a number
		}
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "ashore-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // some run as another user
		return 0, err
	}
	programs = dir
	if err := build("cmd/ashored", "cmd/ashore-agent", "cmd/ashorectl"); err != nil {
		return 0, err
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return 0, fmt.Errorf("after the tests: %w", err)
		}
	}
	return code, nil
}
