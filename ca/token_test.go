package ca

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// The text of a token is nowhere but in the answer.
func TestOnlyTheHashIsKept(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	text := l.token("shop/web")
	records, err := l.store.List(t.Context(), "token")
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	secret := text[strings.LastIndex(text, ".")+1:]
	if strings.Contains(string(records[0].Value), secret) {
		t.Errorf("the record holds the secret: %s", records[0].Value)
	}
	if err := l.audited(audit.TokenCreate, secret); err == nil {
		t.Error("the audit log holds the secret")
	}
}

// A token is made for a group that exists.
func TestCreateToken(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	for name, tc := range map[string]struct {
		r    TokenRequest
		want string
	}{
		"no group":    {TokenRequest{Group: "shop/none"}, ErrNoGroup.Error()},
		"no identity": {TokenRequest{Group: "shop/bad"}, "not a service account"},
	} {
		if _, _, err := l.ledger.CreateToken(t.Context(), tc.r); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	_, token, err := l.ledger.CreateToken(t.Context(), TokenRequest{Group: "shop/web", By: "tester"})
	if err != nil || !token.Expires.Equal(noon.Add(time.Hour)) || token.By != "tester" ||
		token.State(noon) != "unused" {
		t.Errorf("got %+v, error %v", token, err)
	}
}

// What became of a token is told until a day after its end, and then forgotten.
func TestTokensAreListedAndForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	l.join("shop/web", "a")
	revoked := l.token("shop/web")
	id, _, err := parseToken(revoked)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.ledger.RevokeToken(t.Context(), id, "tester"); err != nil {
		t.Fatal(err)
	}
	if err := l.audited(audit.TokenRevoke, id); err != nil {
		t.Error(err)
	}
	l.token("shop/web")
	states := func() string {
		tokens, err := l.ledger.Tokens(t.Context())
		if err != nil {
			t.Error(err)
		}
		count := map[string]int{}
		for _, x := range tokens {
			count[x.State(l.now())]++
		}
		return strings.Join([]string{strings.Repeat("u", count["used"]),
			strings.Repeat("n", count["unused"]), strings.Repeat("e", count["expired"])}, "")
	}
	if got := states(); got != "un" {
		t.Errorf("got %s", got)
	}
	l.pass(time.Hour)
	if got := states(); got != "ue" {
		t.Errorf("after their end: got %s", got)
	}
	for _, step := range []struct {
		passes time.Duration
		want   string
	}{{23 * time.Hour, "ue"}, {time.Hour, ""}} {
		l.pass(step.passes)
		if err := l.ledger.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := states(); got != step.want {
			t.Errorf("after %s more: got %q, want %q", step.passes, got, step.want)
		}
	}
	if err := l.ledger.RevokeToken(t.Context(), id, "tester"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// One record that cannot be read hides no other, and a token whose record is bad lets nobody in.
func TestBadTokenRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	text := l.token("shop/web")
	l.token("shop/web")
	id, _, err := parseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "x"} {
		if err := l.store.Commit(t.Context(), record.Write{Key: record.Key{Table: "token", Name: id},
			Value: []byte(bad), Version: record.Any}); err != nil {
			t.Fatal(err)
		}
		if tokens, err := l.ledger.Tokens(t.Context()); err == nil || len(tokens) != 1 ||
			!strings.Contains(err.Error(), id) {
			t.Errorf("%q: got %d tokens, error %v", bad, len(tokens), err)
		}
		if _, _, err := l.ledger.checkToken(t.Context(), text, noon); err == nil {
			t.Errorf("%q: the token is good", bad)
		}
	}
}

// Nothing but a whole token is read as one, and reading never panics.
func FuzzParseToken(f *testing.F) {
	text, _ := newToken()
	f.Add(text)
	f.Add("ashore-join..")
	f.Add(text + "=")
	f.Fuzz(func(t *testing.T, s string) {
		id, _, err := parseToken(s)
		if err != nil {
			return
		}
		if len(s) != len(text) || !strings.HasPrefix(s, tokenPrefix+id+".") || strings.ContainsAny(id, "/ \x00") {
			t.Fatalf("%q is read as token %q", s, id)
		}
	})
}
