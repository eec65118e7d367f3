package jwks

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// home is where the test's servers are.
func home() netip.Prefix { return netip.MustParsePrefix("127.0.13.0/24") }

// serve starts an HTTPS server on its own loopback address and returns its URL and a fetcher that
// may reach it.
func serve(t *testing.T, h http.HandlerFunc) (string, *Fetcher) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.13.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close() //nolint:errcheck // replaced
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	f := NewFetcher(Config{Allow: []netip.Prefix{home()}, Roots: roots})
	f.client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com" // the test certificate's
	return s.URL, f
}

// A document is fetched over TLS, and anything that is none is refused with the reason.
func TestFetch(t *testing.T) {
	t.Parallel()
	good := document(t, jose.JSONWebKey{Key: &ecKey(t).PublicKey, KeyID: "a"})
	url, f := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			w.Write(good) //nolint:errcheck // the client says
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/large":
			w.Write(make([]byte, MaxBytes+1)) //nolint:errcheck // the client says
		case "/html":
			w.Write([]byte("<html>")) //nolint:errcheck // the client says
		default:
			http.NotFound(w, r)
		}
	})
	for path, want := range map[string]struct {
		is   error
		text string
	}{
		"/good":  {},
		"/moved": {nil, "the server answered 302"},
		"/large": {ErrDocument, "more than 262144"},
		"/html":  {ErrDocument, "not a usable set"},
		"/none":  {nil, "the server answered 404"},
	} {
		set, err := f.Fetch(t.Context(), url+path)
		switch {
		case want.text == "":
			if err != nil || len(set.keys) != 1 {
				t.Errorf("%s: %v", path, err)
			}
		case err == nil || !strings.Contains(err.Error(), want.text) || want.is != nil && !errors.Is(err, want.is):
			t.Errorf("%s: got %v, want %q", path, err, want.text)
		}
	}
}

// Without leave nothing on the machine itself is reached, by address or by name, and nothing is
// asked there.
func TestFetchReachesNoLocalAddress(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	url, _ := serve(t, func(http.ResponseWriter, *http.Request) { asked <- struct{}{} })
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "https://"), ":")
	for _, u := range []string{url, "https://localhost:" + port, "https://[::ffff:127.0.13.1]:" + port,
		"https://[::1]:" + port, "https://0.0.0.0:" + port} {
		if _, err := NewFetcher(Config{}).Fetch(t.Context(), u); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: got %v", u, err)
		}
	}
	if len(asked) > 0 {
		t.Error("the server was asked")
	}
}

// A server that does not answer is given up.
func TestFetchEnds(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	url, f := serve(t, func(http.ResponseWriter, *http.Request) { <-stop })
	defer close(stop)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Fetch(ctx, url); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// Every way to write an address that users have no business at is refused.
func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1",
		"255.255.255.255", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::127.0.0.1",
	} {
		if err := checkAddress(netip.MustParseAddr(a), nil); !errors.Is(err, ErrAddress) {
			t.Errorf("%s may be asked: %v", a, err)
		}
	}
	for _, a := range []string{"10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "fd00::1"} {
		if err := checkAddress(netip.MustParseAddr(a), nil); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	if err := checkAddress(netip.MustParseAddr("127.0.13.7"), []netip.Prefix{home()}); err != nil {
		t.Errorf("what is allowed is refused: %v", err)
	}
}

// A forbidden URL is refused before any request.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"", "http://example.com/keys", "ftp://example.com", "https://",
		"https://user:word@example.com/", "file:///etc/passwd", "://"} {
		if p, err := url.Parse(u); err == nil && NewFetcher(Config{}).check(p) == nil {
			t.Errorf("%q may be fetched", u)
		}
	}
	allowed := NewFetcher(Config{Allow: []netip.Prefix{home()}})
	if err := allowed.check(&url.URL{Scheme: "http", Host: "127.0.13.7:80", Path: "/keys"}); err != nil {
		t.Error(err)
	}
	if allowed.check(&url.URL{Scheme: "http", Host: "10.0.0.1", Path: "/keys"}) == nil {
		t.Error("keys may be fetched without TLS from an address that is not allowed")
	}
}

// No answer of a server makes Fetch panic, and what it takes is a set of keys.
func FuzzFetch(f *testing.F) {
	f.Add(200, []byte(`{"keys":[]}`), "")
	f.Add(302, []byte{}, "https://169.254.169.254/")
	f.Add(204, []byte("x"), "\x00")
	f.Fuzz(func(t *testing.T, status int, body []byte, location string) {
		fetcher := NewFetcher(Config{})
		fetcher.client.Transport = answer{status, body, location}
		set, err := fetcher.Fetch(t.Context(), "https://example.com/keys")
		if (set == nil) == (err == nil) || err == nil && status != http.StatusOK {
			t.Fatalf("status %d: got %v, %v", status, set, err)
		}
	})
}

// answer is a server that always says the same.
type answer struct {
	status   int
	body     []byte
	location string
}

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Location", a.location)
	w.Body.Write(a.body)
	out := w.Result()
	out.StatusCode, out.Request = a.status, r
	return out, nil
}
