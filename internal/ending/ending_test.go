package ending

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// child makes the test binary a program that uses Context, and never ends by itself.
const child = "ASHORE_TEST_ENDING"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	ctx := Context()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("ending")
	select {}
}

// The second signal ends the process, also right after the first.
func TestSecond(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for range 10 {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), child+"=1")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error says that it has ended
			lines := bufio.NewScanner(out)
			for _, want := range []string{"ready", "ending"} {
				if !lines.Scan() || lines.Text() != want {
					t.Fatalf("got %q, %v; want %q", lines.Text(), lines.Err(), want)
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != s {
				t.Errorf("it ended with %v, want %v", err, s)
			}
		}
	}
}
