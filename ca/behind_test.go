package ca

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

var errAway = errors.New("the store does not answer")

// Who is not known by a replica that is out of touch is told to try again, or to ask another one,
// and is judged when it is in touch: another replica may have made his token, his group or his
// certificate. Who is known and refused is refused.
func TestOutOfTouch(t *testing.T) {
	t.Parallel()
	elsewhere := newLab(t, nil)
	elsewhere.serve()
	joined := elsewhere.join("shop/web", "web-9")
	for name, tc := range map[string]struct {
		client func(l *lab) client
		action string
		apart  codes.Code // while it is out of touch
		then   codes.Code
	}{
		"a token of another replica": {func(*lab) client { return client{token: elsewhere.token("shop/web"), name: "a"} }, audit.TokenRefuse, codes.Unavailable, codes.PermissionDenied},
		"a group of another replica": {func(l *lab) client {
			text := l.token("shop/web")
			l.ledger.groups = func(context.Context, string) (string, string, error) { return "", "", ErrNoGroup }
			return client{token: text, name: "a"}
		}, audit.TokenRefuse, codes.Unavailable, codes.FailedPrecondition},
		"a workload of another replica": {func(l *lab) client {
			return client{cert: l.certificateFor(joined.PrivateKey.(keyer), web(t).String())}
		}, audit.CertificateRefuse, codes.Unavailable, codes.Unauthenticated},
		"a token malformed": {func(l *lab) client { return client{token: l.token("shop/web")[:40], name: "a"} }, audit.TokenRefuse, codes.PermissionDenied, codes.PermissionDenied},
		"a token used": {func(l *lab) client {
			text := l.token("shop/web")
			if _, _, err := l.ask(client{token: text, name: "b"}); err != nil {
				t.Error(err)
			}
			return client{token: text, name: "a"}
		}, audit.TokenRefuse, codes.PermissionDenied, codes.PermissionDenied},
		"a stranger": {func(l *lab) client {
			return client{cert: l.certificate(testRoot(t), web(t).String(), noon, noon.Add(1e12), nil)}
		},
			audit.CertificateRefuse, codes.Unauthenticated, codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			c := tc.client(l)
			l.store.part(errAway)
			_, _, err := l.ask(c)
			words, told := "", ""
			if tc.apart == codes.Unavailable {
				words, told = publicBehind, errAway.Error()
			}
			if err := wantRefused(err, tc.apart, words); err != nil {
				t.Error(err)
			}
			if err := l.audited(tc.action, told); err != nil {
				t.Error(err)
			}
			l.store.part(nil)
			if _, _, err := l.ask(c); wantRefused(err, tc.then, "") != nil {
				t.Errorf("in touch: got %v, want %s", err, tc.then)
			}
		})
	}
}

// returning is a store that was out of touch when it was read, and is in touch when it is asked
// whether it is.
type returning struct {
	*faultyStore
}

func (s returning) Get(ctx context.Context, key record.Key) (record.Record, error) {
	defer s.part(nil)
	return s.faultyStore.Get(ctx, key)
}

// What was read before the store was in touch again is no word either.
func TestOutOfTouchAMomentAgo(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	s := returning{l.store}
	l.ledger.records, l.ledger.follower = s, s
	text := newLab(t, nil).token("shop/web")
	s.part(errAway)
	_, _, err := l.ledger.checkToken(t.Context(), text, noon)
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != codes.Unavailable || !errors.Is(err, errAway) {
		t.Errorf("got %v", err)
	}
	leaf := func(c *tls.Certificate) error { _, err := l.ledger.Holds(t.Context(), c.Leaf); return err }
	s.part(errAway)
	if r, ok := errors.AsType[*Refusal](leaf(l.certificateFor(testKey(t, ECDSAP256), web(t).String()))); !ok ||
		r.Code != codes.Unavailable {
		t.Errorf("a certificate: got %v", r)
	}
}
