package consul

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// A token that may not write is told, with what it needs; another one in its file is used at once.
// All of it over TLS.
func TestToken(t *testing.T) {
	t.Parallel()
	const good, bad = "8c4c4a1e-0000-4000-8000-000000000001", "8c4c4a1e-0000-4000-8000-000000000002"
	agent := testconsul.New(t, map[string]any{"acl": map[string]any{"enabled": true, "default_policy": "deny",
		"tokens": map[string]any{"initial_management": good}}})
	agent.Start()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		next := file + ".new"
		if err := errors.Join(os.WriteFile(next, []byte(token+"\n"), 0o600), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(agent)
	s.address, s.token, s.ca = "https://"+agent.Secure, file, agent.CAFile
	write(bad)
	c := s.config(t, newShelf())
	c.Patience = time.Second
	_, err := Open(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("an unknown token: got %v", err)
	}
	c.Options.TokenFile = ""
	if _, err = Open(t.Context(), c); err == nil || !strings.Contains(err.Error(),
		"key_prefix") || !strings.Contains(err.Error(), "store.tokenFile") {
		t.Errorf("no token: got %v, want what it needs", err)
	}
	write(good)
	a := s.open(t)
	put(t, a, "x", "1")
	write(bad)
	if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"},
		Value: []byte("2")}); !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "store.tokenFile") {
		t.Errorf("with a token that is not known any more: got %v", err)
	}
	write(good)
	eventually(t, "the new token is used", func() bool {
		return a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"},
			Value: []byte("3"), Version: record.Any}) == nil
	})

	// a token that may only read
	const reader = "8c4c4a1e-0000-4000-8000-000000000003"
	for _, made := range [][2]string{
		{"/v1/acl/policy", `{"Name":"reader","Rules":"key_prefix \"\" { policy = \"read\" }"}`},
		{"/v1/acl/token", `{"SecretID":"` + reader + `","Policies":[{"Name":"reader"}]}`},
	} {
		path, body := made[0], made[1]
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+agent.Address+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Consul-Token", good)
		if said := ask(t, req); !strings.Contains(said, `"Name"`) && !strings.Contains(said, reader) {
			t.Fatal(said)
		}
	}
	write(reader)
	eventually(t, "writes are refused, and reads are not", func() bool {
		err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"}, Value: []byte("4"),
			Version: record.Any})
		if !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "store.tokenFile") {
			t.Fatalf("with a token that may only read: got %v", err)
		}
		return a.Standing().Error == "" && strings.Contains(a.Refused().Error, "403")
	})
	if _, err := configtest.Put(t.Context(), a, largeObject(), "test"); !errors.Is(err, ErrAway) ||
		!strings.Contains(err.Error(), "store.tokenFile") {
		t.Errorf("a large object with a token that may only read: got %v", err)
	}
}

// A token that may only read is one lasting trouble: what Consul holds is known all the time, and
// it is logged once when nothing can be written and once when that is over.
func TestTokenThatReads(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	other := s.open(t)
	way := newBetween(t, s.address)
	var said bytes.Buffer
	s.address, s.log = way.URL, hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Info})
	a, end := s.start(t, newShelf())
	put(t, a, "x", "1")
	way.losing(func(path string, body []byte) fate {
		if path == "/v1/txn" && bytes.Contains(body, []byte(`"cas"`)) {
			return forbidden
		}
		return passes
	})
	for i := range 4 {
		key := record.Key{Table: "t", Name: fmt.Sprint("y", i)}
		if err := a.Records().Commit(t.Context(), record.Write{Key: key, Value: []byte("2")}); !errors.Is(err,
			ErrAway) || !strings.Contains(err.Error(), "store.tokenFile") {
			t.Errorf("got %v", err)
		}
		if now := a.Standing(); now.Error != "" {
			t.Errorf("it is out of touch: %s", now.Error)
		}
		if why := a.Refused(); !strings.Contains(why.Error, "store.tokenFile") || why.Since.IsZero() {
			t.Errorf("it takes nothing: %+v", why)
		}
		put(t, other, "z", fmt.Sprint(i)) // has it read
		eventually(t, "what another replica wrote is known", func() bool { return valueOf(t, a, "z") == fmt.Sprint(i) })
	}
	way.losing(nil)
	put(t, a, "y", "3")
	if why := a.Refused(); why.Error != "" {
		t.Errorf("it takes what is written, and says %+v", why)
	}
	end()
	for text, want := range map[string]int{"fails: its last known content stays active: operation=write": 1, "works again: operation=write": 1, "operation=read": 0} {
		if got := strings.Count(said.String(), text); got != want {
			t.Errorf("%q is logged %d times, want %d", text, got, want)
		}
	}
}

// largeObject is one that stands in chunks.
func largeObject() *config.Object {
	o := configtest.Object("large", "one.test")
	o.Annotations = map[string]string{"text": randomText(600 << 10)}
	return o
}

// That Consul refuses one write says nothing about others, unless it refuses the token.
func TestRefusals(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	for what, tc := range map[string]struct {
		status  int
		said    string
		refuses bool
	}{
		"a value that is too large":        {status: http.StatusRequestEntityTooLarge, said: "Value for key is too large"},
		"a request that is not understood": {status: http.StatusBadRequest, said: "Failed to parse body"},
		"too many requests":                {status: http.StatusTooManyRequests, said: "Rate limit reached"},
		"a token that may not":             {status: http.StatusForbidden, said: "Permission denied", refuses: true},
		"a token in a transaction": {status: http.StatusConflict,
			said: `{"Errors":[{"OpIndex":0,"What":"Permission denied: token lacks permission"}]}`, refuses: true},
		"a token that is none": {status: http.StatusUnauthorized, said: "no token", refuses: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(agent)
			way := newBetween(t, s.address)
			var log bytes.Buffer
			s.address, s.log = way.URL, hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})
			a, end := s.start(t, newShelf())
			put(t, a, "x", "1")
			way.saying(func(r *http.Request, body []byte) (string, int) {
				if r.URL.Path == "/v1/txn" && bytes.Contains(body, []byte(`"cas"`)) {
					return tc.said, tc.status
				}
				return "", 0
			})
			w := record.Write{Key: record.Key{Table: "t", Name: "y"}, Value: []byte("2")}
			if err := a.Records().Commit(t.Context(), w); !errors.Is(err, ErrAway) ||
				!strings.Contains(err.Error(), s.address) {
				t.Errorf("got %v, want an error that names the Consul and says that nothing was written", err)
			}
			if got := a.Refused(); (got.Error != "") != tc.refuses {
				t.Errorf("it takes nothing: %+v, want %t", got, tc.refuses)
			}
			way.saying(nil)
			put(t, a, "y", "2")
			end()
			for text, want := range map[string]bool{"operation=write error=": tc.refuses, "operation=read": false} {
				if got := strings.Contains(log.String(), text); got != want {
					t.Errorf("%q is logged: %t, want %t:\n%s", text, got, want, &log)
				}
			}
		})
	}
}
