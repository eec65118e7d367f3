package consulhttp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// The error of a connection is the same text for every connection and every question, and says with
// whom it was.
func TestBare(t *testing.T) {
	t.Parallel()
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	reset := os.NewSyscallError("read", syscall.ECONNRESET)
	op := func(local string) error {
		return &net.OpError{Op: "read", Net: "tcp", Source: tcp(local), Addr: tcp("10.0.0.1:8500"), Err: reset}
	}
	tests := map[string]struct {
		err  error
		want string
	}{
		"a reset":           {&url.Error{Op: "Get", URL: "http://a/v1/health/service/web", Err: op("127.0.0.1:43210")}, "read tcp 10.0.0.1:8500: read: connection reset by peer"},
		"another port":      {op("127.0.0.1:43211"), "read tcp 10.0.0.1:8500: read: connection reset by peer"},
		"IPv6":              {op("[::1]:43211"), "read tcp 10.0.0.1:8500: read: connection reset by peer"},
		"within another":    {fmt.Errorf("tls.caFile: %w", op("127.0.0.1:5")), "tls.caFile: read tcp 10.0.0.1:8500: read: connection reset by peer"},
		"a name":            {errors.New("lookup consul.test on 127.0.0.53:53: read udp 127.0.0.1:40001->127.0.0.53:53: i/o timeout"), "lookup consul.test on 127.0.0.53:53: read udp 127.0.0.53:53: i/o timeout"},
		"no address":        {errors.New("a->b is no connection"), "a->b is no connection"},
		"a dial":            {&net.OpError{Op: "dial", Net: "tcp", Addr: tcp("10.0.0.1:8500"), Err: syscall.ECONNREFUSED}, "dial tcp 10.0.0.1:8500: connection refused"},
		"nothing but text":  {errors.New("EOF"), "EOF"},
		"an odd answer":     {&url.Error{Op: "Get", Err: errors.New("readLoopPeekFailLocked: %!w(<nil>)")}, "unsolicited response on an idle connection"},
		"several\nof lines": {errors.New("a\nb"), "a b"},
	}
	for name, tc := range tests {
		if got := Bare(tc.err); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
