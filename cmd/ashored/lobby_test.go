package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// newTestLobby is a lobby for three, and what connects to it from an address.
func newTestLobby(t *testing.T) (*lobby, func(from string) (outside, inside net.Conn)) {
	t.Helper()
	inner, err := net.Listen("tcp", testport.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLobby(inner, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	l.most = 3
	t.Cleanup(func() { _ = l.Close() })
	return l, func(from string) (net.Conn, net.Conn) {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		out, err := d.DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = in.Close(), out.Close() })
		return out, in
	}
}

// closed says whether the other end of c has closed it.
func closed(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("read: %v", err)
	}
	return true
}

// Whoever holds the most connections pays for a full lobby with the oldest one; a newcomer gets in.
func TestLobbyFull(t *testing.T) {
	t.Parallel()
	l, connect := newTestLobby(t)
	single, _ := connect("127.0.0.7")
	first, _ := connect("127.0.0.8")
	second, _ := connect("127.0.0.8")
	newcomer, _ := connect("127.0.0.9")
	if !closed(t, first) {
		t.Error("the oldest connection of who has two is still open")
	}
	for name, c := range map[string]net.Conn{"single": single, "second": second, "newcomer": newcomer} {
		if closed(t, c) {
			t.Errorf("%s was closed", name)
		}
	}
	if l.size() != 3 {
		t.Errorf("%d are inside, want 3", l.size())
	}
}

// Who has proven who it is, and who has gone, makes room.
func TestLobbyLeave(t *testing.T) {
	t.Parallel()
	l, connect := newTestLobby(t)
	proven, in := connect("127.0.0.8")
	l.leave(in.(*visitor))
	_, gone := connect("127.0.0.8")
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		connect("127.0.0.8")
	}
	if closed(t, proven) || l.size() != 3 {
		t.Errorf("a connection that was let out is closed, or %d are inside, want 3", l.size())
	}
	if err := in.Close(); err != nil || l.size() != 3 {
		t.Errorf("closing who had left: %v, %d are inside, want 3", err, l.size())
	}
}

// Who shows a certificate of the mesh leaves the lobby; who shows none stays in it.
func TestLobbyServed(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	made, err := admin.NewClient(s.socket).CreateToken(t.Context(), admin.TokenRequest{Group: "shop/web"})
	if err != nil {
		t.Fatal(err)
	}
	web := s.newMember(t, made.Command)
	if err := web.ask(t, flagOf(made.Command, "--token"), "web-1"); err != nil {
		t.Fatal(err)
	}
	if err := web.stream(t, webNode)(); err != nil {
		t.Fatal(err)
	}
	s.until(t, "nobody is in the lobby", func() bool { return strings.Contains(s.metricsText(t), "ashore_unproven_connections 0\n") })
	stranger := s.newMember(t, made.Command)
	if err := stranger.stream(t, webNode)(); status.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	s.until(t, "the stranger is in the lobby", func() bool { return strings.Contains(s.metricsText(t), "ashore_unproven_connections 1\n") })
}

// metricsText is what Prometheus is told.
func (s *site) metricsText(t *testing.T) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNeighbourhood(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1/32", "[::ffff:10.0.0.1]:1": "10.0.0.1/32", "[2001:db8::1:2:3:4]:1": "2001:db8::/64", "[fe80::1%lo]:1": "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		if got := neighbourhood(a); got.String() != want {
			t.Errorf("%s is from %s, want %s", in, got, want)
		}
	}
}
