package consulhttp

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each request has the current token of the file, and nothing that the library takes from the
// environment. No request is sent if the file has no token.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	tr, err := New(Config{Address: server.URL, TokenFile: file, Connections: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.CloseIdleConnections()
	send := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/kv/x?ns=theirs&partition=theirs&wait=1s", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Consul-Token", "from the environment")
		req.Header.Set("Authorization", "Basic eA==")
		resp, err := tr.Client().Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := send(); err != nil {
			t.Fatal(err)
		}
		if got.Header.Get("X-Consul-Token") != token || got.Header.Get("Authorization") != "" || got.URL.RawQuery != "wait=1s" {
			t.Errorf("sent %v, %v; want only the token %s", got.URL, got.Header, token)
		}
	}
	for _, bad := range []string{"", "two words\n"} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got = nil; send() == nil || got != nil {
			t.Errorf("a token file with %q: want an error and no request", bad)
		}
	}
}
