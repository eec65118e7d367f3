package main

import (
	"net"
	"testing"
	"time"
)

// Whoever connects and says nothing does not keep the program from ending.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	stop := s.start(t)
	for _, address := range []string{s.xds, s.secure} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // its other end has closed it
	}
	ended := make(chan int, 1)
	go func() { ended <- stop() }()
	select {
	case <-ended:
	case <-time.After(handshakeTime / 2):
		t.Error("it waits for connections on which nothing was said")
		<-ended
	}
}
