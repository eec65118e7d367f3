package consulhttp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSplitAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://consul":          "http consul:8500",
		"https://consul":         "https consul:8501",
		"https://[::1]:1":        "https [::1]:1",
		"http://a:1/":            "http a:1",
		"unix:///run/c.sock":     "unix /run/c.sock",
		"consul:8500":            `"consul:8500": want http://HOST:PORT`,
		"http://a/b":             "want http://HOST:PORT",
		"http://a:850000":        `invalid port "850000" in "http://a:850000"`,
		"https://a:0":            `invalid port "0" in`,
		"http://a:":              `invalid port "" in "http://a:"`,
		"unix://run/c.sock":      "want an absolute path",
		"http://me:secret@a:1":   `"http://a:1": want only scheme, host and port`,
		"http://a:1?token=s3cre": `"http://a:1": want only scheme, host and port`,
		"\x00":                   "want http://HOST:PORT",
	} {
		scheme, rest, err := SplitAddress(in)
		got := scheme + " " + rest
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "s3cre") || strings.Contains(got, "secret") {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// Each request has the token that is in the file then, and nothing that the environment may have suggested; without a token in the
// file none goes out.
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
	ask := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/kv/x?ns=theirs&partition=theirs&wait=1s", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Consul-Token", "of the environment")
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
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		if got.Header.Get("X-Consul-Token") != token || got.Header.Get("Authorization") != "" || got.URL.RawQuery != "wait=1s" {
			t.Errorf("sent %v, %v; want the token %s, and nothing else", got.URL, got.Header, token)
		}
	}
	for _, bad := range []string{"", "two words\n"} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got = nil; ask() == nil || got != nil {
			t.Errorf("a file with %q: something was asked", bad)
		}
	}
}

// An answer that is longer than any of Consul's is an error.
func TestBounded(t *testing.T) {
	t.Parallel()
	body := &bounded{http.NoBody, 0}
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, errTooLong) {
		t.Errorf("got %v, want errTooLong", err)
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	if got := OneLine("a\n\tb\x1b[1m\xff" + strings.Repeat("ü", 400)); strings.ContainsAny(got, "\n\t\x1b") || len(got) > maxText+len("…") || !strings.HasPrefix(got, "a b [1m?") {
		t.Errorf("got %q", got)
	}
}
