package mcp

import (
	"net"
	"syscall"
	"testing"
)

// A machine that is gone is found by TCP, since servers are asked seldom.
func TestDialProbes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := [4]int{}
	err = raw.Control(func(fd uintptr) {
		for i, o := range [4][2]int{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},
		} {
			if got[i], err = syscall.GetsockoptInt(int(fd), o[0], o[1]); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got != [4]int{1, 20, 5, 4} {
		t.Errorf("probes, after, every, count: %v", got)
	}
}
