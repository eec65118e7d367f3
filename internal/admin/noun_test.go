package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// nouns answers for the smaller backends with what it was asked.
type nouns struct{ asked chan string }

func (n *nouns) CreateToken(_ context.Context, r TokenRequest, who string) (Token, error) {
	if r.Group == "none/none" {
		return Token{}, NewError(ErrNotFound, "there is no WorkloadGroup none/none")
	}
	return Token{ID: "abc", Group: r.Group, Join: []string{"join", r.TTL}, Token: "secret", Identity: who,
		Expires: time.Unix(5, 0).UTC(), Notes: []string{"note"}}, nil
}

func (n *nouns) ListTokens(context.Context) ([]TokenStatus, error) {
	return []TokenStatus{{ID: "abc", Group: "shop/web", State: "unused", Created: time.Unix(1, 0).UTC(),
		Expires: time.Unix(2, 0).UTC()}}, nil
}

func (n *nouns) RevokeToken(_ context.Context, id, who string) error {
	if id == "used" {
		return NewError(ErrConflict, "it is used already")
	}
	n.asked <- "token " + id + " by " + who
	return nil
}

func (n *nouns) ShowAuthority(context.Context) (Authority, error) {
	return Authority{Kind: "self-signed", Roots: []Certificate{{Root: "sha256:00", State: "signs"}}}, nil
}

func (n *nouns) CreateReplicaToken(_ context.Context, r ReplicaTokenRequest, who string) (ReplicaToken, error) {
	n.asked <- fmt.Sprintf("replica %+v by %s", r, who)
	return ReplicaToken{Token: "ashore-replica.x.y"}, nil
}

func (n *nouns) RotateAuthority(_ context.Context, r RotateRequest, who string) (Authority, error) {
	n.asked <- fmt.Sprintf("rotate %+v by %s", r, who)
	return Authority{Rotation: Rotation{Step: "distribute"}}, nil
}

func (n *nouns) ListWorkloads(context.Context) (WorkloadList, error) {
	return WorkloadList{Workloads: []Workload{{Name: "shop/web-1", Leaves: []Leaf{{Serial: "0a"}}}},
		Revocations: []Revocation{{Kind: "serial", Name: "0b"}}}, nil
}

func (n *nouns) Revoke(_ context.Context, r RevokeRequest, who string) (Revoked, error) {
	n.asked <- fmt.Sprintf("revoke %+v by %s", r, who)
	return Revoked{Kind: "workload", Name: r.Workload}, nil
}

func (n *nouns) Restore(_ context.Context, r RevokeRequest, who string) (Revoked, error) {
	n.asked <- fmt.Sprintf("restore %+v by %s", r, who)
	return Revoked{Kind: "identity", Name: r.Identity}, nil
}

func (n *nouns) Explain(_ context.Context, r ExplainRequest) (Explanation, error) {
	return Explanation{From: r.From, To: r.To, Reason: fmt.Sprint(r.Port, r.Method, r.Path, r.Host),
		Steps: []ExplainStep{{Policy: "p", Rule: -1}}}, nil
}

// Tail sends the numbers below n, and with follow goes on until its context ends.
func (n *nouns) Tail(ctx context.Context, count int, follow bool, emit func(audit.Event) error) error {
	for i := 0; i < count || follow && ctx.Err() == nil; i++ {
		if err := emit(audit.Event{Action: audit.TokenUse, Target: fmt.Sprint(i)}); err != nil {
			return err
		}
	}
	return nil
}

// run runs a server until the test ends.
func run(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
}

// serveAll serves every backend.
func serveAll(t *testing.T, records *recorder, role func(Peer) Role) *Client {
	t.Helper()
	path := socketPath(t)
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	n := &nouns{asked: make(chan string, 100)}
	run(t, New(Config{Listener: l, Backend: &fake{}, Tokens: n, Authority: n, Workloads: n, Audit: n, Explain: n,
		Log: testlog.New(t), Role: role, Record: records.record}))
	return NewClient(path)
}

// What is asked arrives, with who asks, and what is answered comes back.
func TestNouns(t *testing.T) {
	t.Parallel()
	c := serveAll(t, &recorder{}, nil)
	ctx := t.Context()
	n := &nouns{asked: make(chan string, 100)}
	check := func(what string, got any, err error, want any, wantErr error) {
		t.Helper()
		if err = errors.Join(err, wantErr); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	token, err := c.CreateToken(ctx, TokenRequest{Group: "shop/web", TTL: "2h"})
	if !strings.HasPrefix(token.Identity, "user ") && !strings.HasPrefix(token.Identity, "uid ") {
		t.Errorf("who asked is %q", token.Identity)
	}
	wantToken, wantErr := n.CreateToken(ctx, TokenRequest{Group: "shop/web", TTL: "2h"}, token.Identity)
	check("create", token, err, wantToken, wantErr)
	tokens, err := c.ListTokens(ctx)
	wantTokens, wantErr := n.ListTokens(ctx)
	check("list", tokens, err, wantTokens, wantErr)
	check("revoke", nil, c.RevokeToken(ctx, "abc"), nil, nil)
	authority, err := c.Authority(ctx)
	wantAuthority, wantErr := n.ShowAuthority(ctx)
	check("ca", authority, err, wantAuthority, wantErr)
	rotated, err := c.RotateAuthority(ctx, RotateRequest{Force: "activate", Reason: "why"})
	check("rotate", rotated.Rotation.Step, err, "distribute", nil)
	replica, err := c.CreateReplicaToken(ctx, ReplicaTokenRequest{TTL: "1h"})
	check("replica token", replica, err, ReplicaToken{Token: "ashore-replica.x.y"}, nil)
	workloads, err := c.Workloads(ctx)
	wantWorkloads, wantErr := n.ListWorkloads(ctx)
	check("workloads", workloads, err, wantWorkloads, wantErr)
	revoked, err := c.Revoke(ctx, RevokeRequest{Workload: "shop/web-1", Reason: "stolen"})
	check("revoke", revoked, err, Revoked{Kind: "workload", Name: "shop/web-1"}, nil)
	restored, err := c.Restore(ctx, RevokeRequest{Identity: "spiffe://a"})
	check("restore", restored, err, Revoked{Kind: "identity", Name: "spiffe://a"}, nil)
	ask := ExplainRequest{From: "a b", To: "c&d", Port: 80, Method: "GET", Path: "/x?y=z", Host: "h:1&i"}
	explained, err := c.Explain(ctx, ask)
	wantExplained, wantErr := n.Explain(ctx, ask)
	check("explain", explained, err, wantExplained, wantErr)
}

// Questions that make no sense are told, each with a status and words.
func TestWrongQuestions(t *testing.T) {
	t.Parallel()
	c := serveAll(t, &recorder{}, nil)
	for _, tc := range []struct {
		what string
		ask  func(context.Context) error
		is   error
		want string
	}{
		{"no such group", func(ctx context.Context) error {
			_, err := c.CreateToken(ctx, TokenRequest{Group: "none/none"})
			return err
		}, ErrNotFound, "there is no WorkloadGroup"},
		{"used token", func(ctx context.Context) error { return c.RevokeToken(ctx, "used") }, ErrConflict, "used already"},
		{"two targets", func(ctx context.Context) error {
			_, err := c.Revoke(ctx, RevokeRequest{Identity: "a", Serial: "b"})
			return err
		}, ErrInvalid, "name one of"},
		{"no target", func(ctx context.Context) error { _, err := c.Restore(ctx, RevokeRequest{}); return err }, ErrInvalid, "name one of"},
		{"half a question", func(ctx context.Context) error { _, err := c.Explain(ctx, ExplainRequest{From: "a"}); return err }, ErrInvalid, "both from and to"},
		{"unknown field", func(ctx context.Context) error {
			_, err := post[Token](ctx, c, "/v1/join-tokens", map[string]string{"grop": "x"})
			return err
		}, ErrInvalid, `unknown field "grop"`},
		{"large", func(ctx context.Context) error {
			_, err := c.CreateToken(ctx, TokenRequest{Group: strings.Repeat("x", maxBody)})
			return err
		}, ErrInvalid, "too large"},
		{"port", func(ctx context.Context) error {
			_, err := get[Explanation](ctx, c, "/v1/authz/explain", map[string][]string{"port": {"70000"}})
			return err
		}, ErrInvalid, "is not a port"},
		{"many events", func(ctx context.Context) error { return c.TailAudit(ctx, maxTail+1, false, nil) }, ErrInvalid, "want a number from 0 to"},
		{"the other method", func(ctx context.Context) error {
			_, err := get[Revoked](ctx, c, "/v1/workloads/revoke", nil)
			return err
		}, ErrNotFound, "GET /v1/workloads/revoke is not part"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			if err := tc.ask(t.Context()); !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q", err, tc.is, tc.want)
			}
		})
	}
}

// What nobody answers says why.
func TestNotSetUp(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	run(t, New(Config{Listener: l, Backend: &fake{}, Log: testlog.New(t), Missing: "set xds.address"}))
	c := NewClient(path)
	_, token := c.CreateToken(t.Context(), TokenRequest{Group: "a/b"})
	_, authority := c.Authority(t.Context())
	_, workloads := c.Workloads(t.Context())
	_, explain := c.Explain(t.Context(), ExplainRequest{From: "a", To: "b"})
	for what, err := range map[string]error{"token": token, "ca": authority, "workloads": workloads, "explain": explain,
		"audit": c.TailAudit(t.Context(), 1, false, nil)} {
		if !errors.Is(err, ErrNotSetUp) || !strings.Contains(err.Error(), ": set xds.address") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTailAudit(t *testing.T) {
	t.Parallel()
	c := serveAll(t, &recorder{}, nil).Within(time.Minute)
	var got []string
	if err := c.TailAudit(t.Context(), 3, false, func(e audit.Event) error {
		got = append(got,
			e.Target)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"0", "1", "2"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	err := c.TailAudit(ctx, 1, true, func(audit.Event) error {
		if seen++; seen == 100 {
			cancel()
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("followed %d, %v", seen, err)
	}
	stop := errors.New("enough")
	if err := c.TailAudit(t.Context(), 1, true, func(audit.Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// A log that cannot be read to its end is an error, also after events.
func TestTailAuditFails(t *testing.T) {
	t.Parallel()
	for _, after := range []int{0, 2} {
		path := socketPath(t)
		l, err := Listen(path, false)
		if err != nil {
			t.Fatal(err)
		}
		run(t, New(Config{Listener: l, Backend: &fake{}, Audit: brokenLog{after}, Log: testlog.New(t)}))
		seen := 0
		err = NewClient(path).TailAudit(t.Context(), 9, false, func(audit.Event) error { seen++; return nil })
		if seen != after || err == nil || !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("%d events, %v; want %d, and why there are no more", seen, err, after)
		}
	}
}

// brokenLog ends with an error after some events.
type brokenLog struct{ after int }

func (b brokenLog) Tail(_ context.Context, _ int, _ bool, emit func(audit.Event) error) error {
	for range b.after {
		if err := emit(audit.Event{Action: audit.TokenUse}); err != nil {
			return err
		}
	}
	return syscall.EIO
}

// Who follows does not keep a server from ending.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	quiet := &quietLog{entered: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(Config{Listener: l, Backend: &fake{}, Audit: quiet, Log: testlog.New(t)}).Run(ctx) }()
	followed := make(chan error, 1)
	go func() { followed <- NewClient(path).TailAudit(t.Context(), 0, true, nil) }()
	<-quiet.entered
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-followed; !errors.Is(err, ErrNotRunning) {
		t.Errorf("who followed is told %v", err)
	}
}

// quietLog has no events.
type quietLog struct{ entered chan struct{} }

func (q *quietLog) Tail(ctx context.Context, _ int, _ bool, _ func(audit.Event) error) error {
	close(q.entered)
	<-ctx.Done()
	return nil
}

// A status has one error, and the other way round.
func TestStatuses(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for is, code := range statuses() {
		if seen[code] || sentinel(code) != is || status(NewError(is, "x")) != code {
			t.Errorf("%v is %d", is, code)
		}
		seen[code] = true
	}
	if status(errors.New("x")) != http.StatusInternalServerError {
		t.Error("an unknown error is the server's")
	}
}
