package agent

import (
	"net"
	"testing"
	"time"
)

// An address that is free in a moment, as after an agent that was killed, is waited for.
func TestAddressFreeInAMoment(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.15.61:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		done <- busy.Close()
	}()
	l, err := listenRetry(t.Context(), busy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
