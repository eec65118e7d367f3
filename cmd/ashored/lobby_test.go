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

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// newTestLobby is a lobby for three, and what connects to it from an address.
func newTestLobby(t *testing.T) (*lobby, func(from string) (outside, inside net.Conn)) {
	t.Helper()
	inner, err := net.Listen("tcp", testport.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	limits, err := newConnLimiter(2, r, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLobby(inner, limits, r)
	if err != nil {
		t.Fatal(err)
	}
	l.handshakes.most, l.unproven.most = 3, 2
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
	if l.size(&l.handshakes) != 3 {
		t.Errorf("%d are inside, want 3", l.size(&l.handshakes))
	}
}

// Who has proven who it is, and who has gone, makes room.
func TestLobbyLeave(t *testing.T) {
	t.Parallel()
	l, connect := newTestLobby(t)
	proven, in := connect("127.0.0.8")
	l.move(in.(*visitor), nil)
	_, gone := connect("127.0.0.8")
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		connect("127.0.0.8")
	}
	if closed(t, proven) || l.size(&l.handshakes) != 3 {
		t.Errorf("a connection that was let out is closed, or %d are inside, want 3", l.size(&l.handshakes))
	}
	if err := gone.Close(); err == nil {
		t.Error("closed twice without an error")
	}
	l.move(gone.(*visitor), &l.unproven)
	if l.size(&l.unproven) != 0 {
		t.Error("who has gone is inside again")
	}
	if err := in.Close(); err != nil || l.size(&l.handshakes) != 3 {
		t.Errorf("closing who had left: %v, %d are inside, want 3", err, l.size(&l.handshakes))
	}
}

// Whose handshake is done makes room for another one's, and counts among the unproven from then on.
func TestLobbyRooms(t *testing.T) {
	t.Parallel()
	l, connect := newTestLobby(t)
	var outside []net.Conn
	for range 3 {
		out, in := connect("127.0.0.8")
		l.move(in.(*visitor), &l.unproven)
		outside = append(outside, out)
	}
	if !closed(t, outside[0]) || closed(t, outside[1]) || closed(t, outside[2]) {
		t.Error("of three unproven ones, where there is room for two, the first alone is to be closed")
	}
	if l.size(&l.handshakes) != 0 || l.size(&l.unproven) != 2 {
		t.Errorf("%d are at their handshake and %d unproven, want 0 and 2", l.size(&l.handshakes), l.size(&l.unproven))
	}
}

// Who shows a certificate of the mesh leaves the lobby; who shows none stays in it.
func TestLobbyServed(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	web, made := s.joined(t)
	if err := web.stream(t, webNode)(); err != nil {
		t.Fatal(err)
	}
	s.until(t, "nobody is in the lobby", func() bool { return strings.Contains(s.metricsText(t), `ashore_unproven_connections{stage="done"} 0`) })
	stranger := s.newMember(t, made)
	if err := stranger.stream(t, webNode)(); status.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	s.until(t, "the stranger is in the lobby", func() bool { return strings.Contains(s.metricsText(t), `ashore_unproven_connections{stage="done"} 1`) })
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
