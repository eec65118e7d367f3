package ca

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// Whoever calls or is refused too often is not listened to, and writes nothing into the audit log
// by that.
func TestServerLimits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit  func(s *Server) *ratelimit.Limiter
		client func(l *lab) client
		first  codes.Code
		public string
	}{
		"refused": {func(s *Server) *ratelimit.Limiter { return &s.refusedByAddress }, func(*lab) client { return client{} },
			codes.Unauthenticated, "too many calls from this address were refused"},
		"caller": {func(s *Server) *ratelimit.Limiter { return &s.byCaller }, func(l *lab) client {
			return client{token: l.token("shop/web"), name: "a", key: NewKey()}
		},
			codes.OK, "too many calls come from this caller"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			limit := tc.limit(l.server)
			limit.Burst, limit.Every = 1, time.Second
			l.serve()
			c := tc.client(l)
			_, _, err := l.ask(c)
			if err := wantRefused(err, tc.first, ""); err != nil {
				t.Fatal(err)
			}
			l.events = nil
			_, _, err = l.ask(c)
			if err := wantRefused(err, codes.ResourceExhausted, tc.public); err != nil {
				t.Error(err)
			}
			if len(l.events) > 0 {
				t.Errorf("the audit log has %v", l.events)
			}
			l.pass(2 * time.Second)
			_, _, err = l.ask(c)
			if err := wantRefused(err, codes.ResourceExhausted, ""); err == nil {
				t.Error("it is never listened to again")
			}
		})
	}
}

// A workload with too many valid certificates gets no more: each must stay known until it ends.
func TestTooManyCertificates(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	w, version, err := l.ledger.workloads.get(t.Context(), "shop/a")
	if err != nil {
		t.Fatal(err)
	}
	w.Group = strings.Repeat("g", 510)
	for len(w.Leaves) < maxLeaves {
		leaf := w.Leaves[0]
		leaf.Serial = fmt.Sprintf("%032x", len(w.Leaves))
		w.Leaves = append(w.Leaves, leaf)
	}
	if text, err := json.Marshal(w); err != nil || len(text) > record.MaxValue*7/8 {
		t.Fatalf("a full record has %d bytes, and may be revoked only as long as it fits; error %v", len(text), err)
	}
	write, err := l.ledger.workloads.replace(w.Name, w, version)
	if err == nil {
		err = l.store.Commit(t.Context(), write)
	}
	if err != nil {
		t.Fatalf("a full record does not fit: %v", err)
	}
	_, _, err = l.ask(client{cert: c})
	if err := wantRefused(err, codes.ResourceExhausted, "valid at once"); err != nil {
		t.Error(err)
	}
	if err := l.audited(audit.CertificateRefuse, "too many certificates"); err != nil {
		t.Error(err)
	}
	l.pass(25 * time.Hour)
	if _, _, err := l.ask(client{cert: c}); err != nil {
		t.Errorf("after they ended: %v", err)
	}
}

// Whoever is refused all the time does not fill the audit log, and does not keep others from being
// written down; what was left out is counted.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.server.written.Burst = 3
	stranger := Call{Bearer: "nonsense", From: netip.MustParseAddr("192.0.2.1"), Now: noon}
	other := Call{Bearer: "nonsense", From: netip.MustParseAddr("192.0.2.2"), Now: noon}
	for range 10 {
		if err := l.server.refuse(stranger, nil, refusal(byCertificate, "untrusted", "%w", errDisk)); err == nil {
			t.Fatal("not refused")
		}
	}
	if n := len(l.events); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	for who, p := range map[string]*Proof{"another address": nil, "a workload": {Caller: "workload shop/a"}} {
		l.events = nil
		if err := l.server.refuse(other, p, refusal(byCertificate, "untrusted", "%w", errDisk)); err == nil || len(l.events) != 1 {
			t.Fatalf("%s: error %v, %d events", who, err, len(l.events))
		}
	}
	l.events, stranger.Now = nil, noon.Add(time.Minute)
	err := l.server.refuse(stranger, nil, refusal(byCertificate, "untrusted", "%w", errDisk))
	if err == nil || len(l.events) != 1 || l.events[0].Details["unwritten"] != "7" {
		t.Errorf("error %v, events %v; want that 7 refusals were not written", err, l.events)
	}
}
