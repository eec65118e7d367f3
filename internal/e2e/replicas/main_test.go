package replicas

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
)

// inside says to a process of this test that it is in the network namespace.
const inside = "ASHORE_TEST_REPLICAS_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		os.Exit(enter())
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "bring up the loopback (needs iproute2, \"make net-tools\"): %v\n%s", err, out)
		os.Exit(1)
	}
	harness.Main(m)
}

// enter runs this test again in a network namespace of its own, which ends with it.
func enter() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	wait, err := testchild.Start(cmd)
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a network namespace (needs root):", err)
		return 1
	}
	_ = wait() // how it ended is its exit code
	return cmd.ProcessState.ExitCode()
}
