package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// The token is found in both forms, and nothing else is taken for one.
func TestTokens(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]map[int]int{
		"join --token a.b.c --group x/y":  {2: 0},
		"join --token=a.b.c --group x/y":  {1: 8},
		"join --token-file a --group x/y": {},
		"join --token":                    {},
		"join --token=":                   {},
	} {
		if got := tokens(strings.Fields(line)); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// TestHelperArguments is run by TestTokenIsHidden as a program of its own.
func TestHelperArguments(t *testing.T) {
	if os.Getenv("ASHORE_TEST_ARGUMENTS") == "" {
		return // it is the program of another test
	}
	args := takeArguments()
	seen, err := os.ReadFile("/proc/" + strconv.Itoa(os.Getpid()) + "/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(seen, []byte("s3cret")) || !strings.Contains(strings.Join(args, " "), "--token ashore-join.id.s3cret") {
		t.Errorf("others see %q, the program %q", seen, args)
	}
}

// Other users of the machine do not see the token in the list of processes.
func TestTokenIsHidden(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=TestHelperArguments", "--", "--token", "ashore-join.id.s3cret")
	cmd.Env = append(os.Environ(), "ASHORE_TEST_ARGUMENTS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
