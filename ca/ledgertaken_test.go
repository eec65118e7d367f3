package ca

import (
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// seated is a workload whose proxy is connected.
func seated(Workload) string { return "a machine of this name is connected from 10.0.0.5" }

// The name of a machine that is alive is not another one's by accident: two were cloned from one
// image. The token stays good, for another name.
func TestNameInUse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		present func(Workload) string
		pass    time.Duration
		words   string
	}{
		"connected":                {seated, time.Minute, "the name shop/vm is in use: a machine of this name is connected from 10.0.0.5"},
		"joined and not connected": {nil, time.Second, "a machine joined under this name from 127.0.0.1 at 2026-11-21T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			first := l.join("shop/web", "vm")
			l.connect(tc.present)
			l.pass(tc.pass)
			token := l.token("shop/web")
			_, _, err := l.ask(client{token: token, name: "vm"})
			if err := wantRefused(err, codes.AlreadyExists, tc.words); err != nil {
				t.Error(err)
			}
			if err := l.audited(audit.TokenRefuse, "name in use"); err != nil {
				t.Error(err)
			}
			if _, _, err := l.ask(client{cert: first}); err != nil {
				t.Errorf("the machine that has the name: %v", err)
			}
			if _, _, err := l.ask(client{token: token, name: "vm-2"}); err != nil {
				t.Errorf("the token, for another name: %v", err)
			}
		})
	}
}

// Who has a reason takes the name of a workload that is alive.
func TestNameIsFree(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(l *lab, c client) client{
		"on purpose": func(_ *lab, c client) client { c.replace = true; return c },
		"with the key of its certificate, on another line": func(l *lab, c client) client {
			c.cert = l.renewed
			return c
		},
		"with the key of the certificate before that": func(l *lab, c client) client {
			c.cert = l.first
			return c
		},
		"after its certificates were revoked": func(l *lab, c client) client {
			l.revoke(RevokeSerial, serialText(l.first.Leaf))
			l.revoke(RevokeSerial, serialText(l.renewed.Leaf))
			return c
		},
		"after its certificates have ended": func(l *lab, c client) client { l.pass(25 * time.Hour); c.token = l.token("shop/web"); return c },
		"when nobody is there any more":     func(l *lab, c client) client { l.connect(nil); l.pass(joinTime); return c },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			l.first = l.join("shop/web", "vm")
			var err error
			if l.renewed, _, err = l.ask(client{cert: l.first}); err != nil {
				t.Fatal(err)
			}
			l.connect(seated)
			if _, _, err := l.ask(then(l, client{token: l.token("shop/web"), name: "vm"})); err != nil {
				t.Error(err)
			}
		})
	}
}

// A certificate of somebody else beside the token frees no name.
func TestForeignCertificateFreesNoName(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	l.join("shop/web", "vm")
	other := l.join("shop/web", "b")
	_, _, err := l.ask(client{token: l.token("shop/web"), name: "vm", cert: other})
	if err := wantRefused(err, codes.AlreadyExists, "in use"); err != nil {
		t.Error(err)
	}
}

// Of machines that join under one name at the same moment one does, and the others keep their
// tokens.
func TestJoinAtTheSameMoment(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	const machines = 8
	tokens := make([]string, machines)
	for i := range tokens {
		tokens[i] = l.token("shop/web")
	}
	errs := make([]error, machines)
	var wait sync.WaitGroup
	for i := range machines {
		wait.Go(func() { _, _, errs[i] = l.ask(client{token: tokens[i], name: "vm"}) })
	}
	wait.Wait()
	joined := 0
	for i, err := range errs {
		if err == nil {
			joined++
			continue
		}
		if err := wantRefused(err, codes.AlreadyExists, "joined under this name"); err != nil {
			t.Error(err)
		}
		if _, _, err := l.ask(client{token: tokens[i], name: "vm-" + string(rune('a'+i))}); err != nil {
			t.Errorf("the token of one that was refused: %v", err)
		}
	}
	if joined != 1 {
		t.Errorf("%d machines joined under one name, want 1", joined)
	}
}

// Whoever lost his place is told so at once, and whenever he asks, until nobody can come back with
// the key.
func TestReplacedIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	first := l.join("shop/web", "vm")
	before := l.ledger.reportReplaced(t.Context(), nil)
	l.connect(seated)
	l.pass(time.Minute)
	if _, _, err := l.ask(client{token: l.token("shop/web"), name: "vm", replace: true}); err != nil {
		t.Fatal(err)
	}
	l.ledger.reportReplaced(t.Context(), before)
	const words = "another machine joined under the name shop/vm at 2026-11-21T12:01:00Z from 127.0.0.1"
	if n := len(l.ousted); n != 1 || !strings.Contains(l.ousted[0].Text, words) ||
		len(l.ousted[0].Former) != 1 || l.ousted[0].Former[0].SHA256 != Fingerprint(first.Leaf) {
		t.Errorf("told of the replacement: %+v", l.ousted)
	}
	_, _, err := l.ask(client{cert: first})
	if err := wantRefused(err, codes.Unauthenticated, words); err != nil {
		t.Error(err)
	}
	if _, err := l.ledger.Holds(t.Context(), first.Leaf); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("looked up by its certificate: %v", err)
	}
}
