package harness

import (
	"errors"
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

// Build builds another program of the module, "./examples/echo", and returns its path.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", programs+"/", pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return filepath.Join(programs, filepath.Base(pkg))
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
	root, err := moduleRoot()
	if err != nil {
		return 0, err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/ashored", "./cmd/ashore-agent", "./cmd/ashorectl")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	programs = dir
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return 0, fmt.Errorf("after the tests: %w", err)
		}
	}
	return code, nil
}

// moduleRoot is the folder of go.mod above the test.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		} else if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the test")
		}
	}
}
