package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// destroyer skips a test where this process may not end sockets, or the kernel cannot.
func destroyer(t *testing.T) {
	t.Helper()
	err := canDestroy(t.Context())
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("sockets cannot be ended here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ends are those of a TCP connection from an address to another, where somebody listens at a third that covers it.
func ends(t *testing.T, from, to, listen string) (near, far *net.TCPConn) {
	t.Helper()
	var c net.ListenConfig
	c.SetMultipathTCP(false) // as Envoy's
	l, err := c.Listen(t.Context(), "tcp", net.JoinHostPort(listen, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	near, err = net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(from)}, &net.TCPAddr{IP: net.ParseIP(to), Port: l.Addr().(*net.TCPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far = accepted.(*net.TCPConn)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() }) // they may have been ended
	deadline := time.Now().Add(20 * time.Second)
	if err := errors.Join(near.SetDeadline(deadline), far.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// alive says whether bytes pass.
func alive(near, far net.Conn) error {
	if _, err := near.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(far, make([]byte, 1))
	return err
}

// What a process has open with the addresses ends at once, at both ends, and nothing else does: not what it has open with
// others, nor what others have open with these.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	destroyer(t)
	for _, tc := range []struct{ name, listen, revoked, other string }{
		{"IPv4", "127.0.21.1", "127.0.21.7", "127.0.21.8"},
		{"IPv4 at a socket of IPv6", "::", "127.0.21.9", "127.0.21.10"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, in := ends(t, tc.revoked, "127.0.21.1", tc.listen)
			keptOut, keptIn := ends(t, tc.other, "127.0.21.1", tc.listen)
			addresses := map[netip.Addr]bool{netip.MustParseAddr(tc.revoked): true}
			if n, err := cutConnections(os.Getppid(), addresses); n != 0 || err != nil {
				t.Errorf("of another process: %d, %v", n, err)
			}
			if err := alive(out, in); err != nil {
				t.Fatalf("before: %v", err)
			}
			if n, err := cutConnections(os.Getpid(), addresses); n != 1 || err != nil {
				t.Errorf("got %d, %v, want the one", n, err)
			}
			if _, err := in.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
				t.Errorf("here: got %v, want %v", err, unix.ECONNABORTED)
			}
			if _, err := out.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("at the peer: got %v, want %v", err, unix.ECONNRESET)
			}
			if err := alive(keptOut, keptIn); err != nil {
				t.Errorf("with another one: %v", err)
			}
			if n, err := cutConnections(os.Getpid(), addresses); n != 0 || err != nil {
				t.Errorf("again: %d, %v", n, err)
			}
		})
	}
}

// Only this kernel's answers are understood, whole.
func TestParseSocket(t *testing.T) {
	t.Parallel()
	answer := func(family byte, remote []byte) []byte {
		b := make([]byte, socketAnswer)
		b[0] = family
		copy(b[4+20:], remote)
		binary.NativeEndian.PutUint32(b[socketAnswer-4:], 4711)
		return b
	}
	mapped := append(append(make([]byte, 10), 0xff, 0xff), 10, 0, 0, 7)
	for _, tc := range []struct {
		name string
		body []byte
		want string
	}{
		{"IPv4", answer(unix.AF_INET, []byte{10, 0, 0, 7}), "10.0.0.7"},
		{"IPv6", answer(unix.AF_INET6, []byte{0xfd, 0, 15: 1}), "fd00::1"},
		{"IPv4 at a socket of IPv6", answer(unix.AF_INET6, mapped), "10.0.0.7"},
		{"another family", answer(unix.AF_UNIX, nil), ""},
		{"cut off", answer(unix.AF_INET, nil)[:socketAnswer-1], ""},
		{"nothing", nil, ""},
	} {
		s, ok := parseSocket(tc.body)
		if ok != (tc.want != "") || ok && (s.remote.String() != tc.want || s.inode != 4711 || !bytes.Equal(s.id[:], tc.body[4:4+socketIDSize])) {
			t.Errorf("%s: got %v of inode %d, %v, want %q", tc.name, s.remote, s.inode, ok, tc.want)
		}
	}
}

// The kernel's errors are told; code 0 is none.
func TestNetlinkError(t *testing.T) {
	t.Parallel()
	eperm := int32(unix.EPERM)
	for _, tc := range []struct {
		body []byte
		want error
	}{
		{binary.NativeEndian.AppendUint32(nil, 0), nil},
		{binary.NativeEndian.AppendUint32(nil, uint32(-eperm)), unix.EPERM},
		{[]byte{1}, unix.EBADMSG},
	} {
		if got := netlinkError(tc.body); !errors.Is(got, tc.want) || (got == nil) != (tc.want == nil) {
			t.Errorf("%v: got %v, want %v", tc.body, got, tc.want)
		}
	}
}
