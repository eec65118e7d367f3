package testchild

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain runs the tests or, in a process that a test has started, a parent or the child of that.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "parent":
		fmt.Fprintln(os.Stderr, parent())
		os.Exit(1)
	case len(os.Args) == 2 && os.Args[1] == "child":
		time.Sleep(30 * time.Second) // it is killed long before, or the test fails
		fmt.Println("outlived")
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// parent starts a child that holds standard output open for as long as it lives, says that it runs,
// and waits.
func parent() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "child")
	cmd.Stdout = os.Stdout
	wait, err := Start(cmd)
	if err != nil {
		return err
	}
	fmt.Println("runs")
	return wait()
}

// A child ends if its parent is killed.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "runs\n" {
		t.Fatalf("the parent said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The pipe ends when the last process that holds it does; a child that lives on says so at its
	// own end.
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("the child outlived its parent: %q, %v", rest, err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("got %v, want that it was killed", err)
	}
}

// The end of a child is reported to everyone who waits; a program that is not there does not start.
func TestWait(t *testing.T) {
	t.Parallel()
	wait, err := Start(exec.Command("false"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var exit *exec.ExitError
		if err := wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("got %v, want exit status 1", err)
		}
	}
	if _, err := Start(exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that it does not exist", err)
	}
}
