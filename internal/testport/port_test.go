package testport

import (
	"net"
	"testing"
)

// A port is free, and no second test gets it.
func TestFree(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		addr := Address(t)
		if seen[addr] {
			t.Fatalf("%s is given twice", addr)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What somebody listens on is nobody's to get, and what a test had is free after it.
func TestClaim(t *testing.T) {
	t.Parallel()
	port := Free(t)
	if claim(t, port) {
		t.Error("a port is given twice")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if claim(t, l.Addr().(*net.TCPAddr).Port) {
		t.Error("a port that somebody listens on is given")
	}
	var was int
	t.Run("a test", func(t *testing.T) { was = Free(t) })
	if !claim(t, was) {
		t.Error("the port is not given back")
	}
}
