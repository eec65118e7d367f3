package ca

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
)

var errAway = errors.New("the store does not answer")

// Who is not known by a replica that is out of touch is told to try again, or to ask another one,
// and is judged when it is in touch: another replica may have made his token. Who is
// known and refused is refused.
func TestOutOfTouch(t *testing.T) {
	t.Parallel()
	elsewhere := newLab(t, nil)
	elsewhere.serve()
	for name, tc := range map[string]struct {
		client func(l *lab) client
		action string
		apart  codes.Code // while it is out of touch
		then   codes.Code
	}{
		"a token of another replica": {func(*lab) client { return client{token: elsewhere.token("shop/web"), name: "a"} }, audit.TokenRefuse, codes.Unavailable, codes.PermissionDenied},
		"a token malformed":          {func(l *lab) client { return client{token: l.token("shop/web")[:40], name: "a"} }, audit.TokenRefuse, codes.PermissionDenied, codes.PermissionDenied},
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
