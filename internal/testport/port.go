package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports are in [first, end): above those of well-known services, below the ephemeral ports of
// Linux (32768).
const first, end = 20_000, 32_000

// Free returns a free TCP port on 127.0.0.1, and reserves it until t ends.
func Free(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := first + rand.N(end-first)
		if claim(t, port) {
			return port
		}
	}
	t.Fatalf("no port of 127.0.0.1 from %d to %d is free", first, end-1)
	return 0
}

// Address returns a port of Free as "127.0.0.1:20123".
func Address(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", Free(t))
}

// claim reserves a port for t in all processes, by the UDP port of that number, which tests do not
// use.
func claim(t testing.TB, port int) bool {
	t.Helper()
	mine, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		if err := mine.Close(); err != nil {
			t.Errorf("give back port %d: %v", port, err)
		}
		return false
	}
	t.Cleanup(func() {
		if err := mine.Close(); err != nil {
			t.Errorf("give back port %d: %v", port, err)
		}
	})
	return true
}
