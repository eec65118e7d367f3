package server

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/sdnotify"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// systemd hears what ashored waits for, that it is ready, that it is alive for as long as its loop
// answers.
func TestServiceManager(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt((time.Hour).Microseconds(), 10))
	next := func() string {
		t.Helper()
		buf := make([]byte, 1024)
		if err := l.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := l.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	looks := 0
	m := &startup{notifier: sdnotify.Notifier{Log: testlog.New(t)},
		responds: func(context.Context) error { return nil },
		waiting: func() []string {
			if looks++; looks == 1 {
				return []string{"consul", "store"}
			}
			return nil
		}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.run(ctx) }()
	var told []string
	for range 4 {
		told = append(told, next())
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	const want = "STATUS=waits for consul, store|WATCHDOG=1|STATUS=ready|READY=1"
	if got := strings.Join(told, "|"); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	m.notifier.Reloading()
	if got := next(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("reloading: %q", got)
	}
}
