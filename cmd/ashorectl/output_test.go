package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A proxy chooses its own name. The name neither controls the terminal, nor adds a row, nor is
// completed if a shell would interpret it.
func TestUnsafeNames(t *testing.T) {
	t.Parallel()
	f := &fake{others: []string{"a\x1b[2Jb.shop", "c\u009b2Jd.shop", "e\nproxy.bank  synced", "$(reboot).shop",
		"`x`.shop"}}
	socket := serve(t, f)
	code, out, errOut := result(t, "status", "--socket", socket)
	if code != 0 || strings.ContainsAny(out, "\x1b\u009b") || strings.Contains(out, "\nproxy.bank") {
		t.Errorf("exit code %d, %q, %s", code, out, errOut)
	}
	for _, want := range []string{"a?[2Jb.shop", "c?2Jd.shop", "e?proxy.bank"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if _, out, _ := result(t, "__complete", "--socket", socket, "proxy-status", ""); !strings.HasPrefix(out,
		"api-1.shop\nweb-1.shop\n:") {
		t.Errorf("completed are %q", out)
	}
	if code, _, errOut := result(t, "status", "--socket", socket, "x\x1b[2J"); code == 0 ||
		strings.Contains(errOut, "\x1b") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for in, want := range map[time.Duration][2]string{
			1:                              {"0s", "0s ago"},
			time.Minute:                    {"0s", "in 1m"},
			time.Hour - time.Millisecond:   {"0s", "in 1h"},
			48 * time.Hour:                 {"0s", "in 2d"},
			-90 * time.Second:              {"1m", "1m ago"},
			-47*time.Hour - 59*time.Minute: {"47h", "47h ago"},
		} {
			at := time.Now().Add(in)
			if got := [2]string{age(at), when(at)}; got != want {
				t.Errorf("%s: got %q, want %q", in, got, want)
			}
		}
	})
	if age(time.Time{}) != "" || when(time.Time{}) != "" {
		t.Error("no time has an age")
	}
}
