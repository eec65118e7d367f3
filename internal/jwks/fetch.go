package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// ErrURL is why a URL is not fetched.
var ErrURL = errors.New("keys are not fetched from this URL")

// Config says from where and how documents are fetched. The zero value is the safe default.
type Config struct {
	// Allow are ranges of addresses that are asked although they are loopback, link-local or a
	// metadata service.
	Allow []netip.Prefix
	// AllowHTTP lets documents come without TLS: then whoever is on the way can put keys in.
	AllowHTTP bool
	// Roots are the authorities that servers are verified with. Nil: those of the system.
	Roots *x509.CertPool
}

// Fetcher fetches documents. It remembers nothing, keeps no connections, and has no goroutines of
// its own. Safe for concurrent use.
type Fetcher struct {
	config Config
	client *http.Client
}

// maxRedirects bounds how often a document may stand somewhere else.
const maxRedirects = 3

// fetchTimeout bounds one fetch, redirects included. Istio has the same.
const fetchTimeout = 5 * time.Second

// NewFetcher makes a fetcher.
func NewFetcher(c Config) *Fetcher {
	f := &Fetcher{config: c}
	// The address is judged when it is dialled: a name that is resolved again may resolve to
	// another one.
	dialer := &net.Dialer{Control: f.control}
	f.client = &http.Client{
		CheckRedirect: f.redirect,
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy would be dialled in place of the address that is judged
			DialContext:            dialer.DialContext,
			DisableKeepAlives:      true,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots},
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
	return f
}

// control judges the address that is about to be dialled.
func (f *Fetcher) control(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrAddress, address, err)
	}
	return checkAddress(a.Addr(), f.config.Allow)
}

// redirect judges where a server sends us.
func (f *Fetcher) redirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d redirects", ErrURL, maxRedirects)
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return fmt.Errorf("%w: it redirects away from TLS", ErrURL)
	}
	return f.check(r.URL)
}

// Check says why a URL would not be fetched, as far as that can be told without asking anybody.
// Errors: ErrURL, ErrAddress.
func (f *Fetcher) Check(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	return f.check(u)
}

func (f *Fetcher) check(u *url.URL) error {
	switch {
	case u.Scheme == "http" && !f.config.AllowHTTP:
		return fmt.Errorf("%w: it is http, want https: whoever is on the way could put keys in", ErrURL)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%w: its scheme is %.20q, want https", ErrURL, u.Scheme)
	case u.Hostname() == "":
		return fmt.Errorf("%w: it names no host", ErrURL)
	case u.User != nil:
		return fmt.Errorf("%w: it holds a user name or a password", ErrURL)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return checkAddress(a, f.config.Allow)
	}
	return nil
}

// Fetch gets and reads the document at a URL; one that ends in DiscoveryPath tells where the issuer
// before it has its keys, which are fetched then. Errors: ErrURL, ErrAddress, ErrDocument, or what
// went wrong on the way.
func (f *Fetcher) Fetch(ctx context.Context, text string) (*Set, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if issuer, ok := strings.CutSuffix(text, DiscoveryPath); ok {
		found, err := f.discover(ctx, issuer)
		if err != nil {
			return nil, err
		}
		text = found
	}
	body, err := f.get(ctx, text)
	if err != nil {
		return nil, err
	}
	set, err := Parse(body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", text, err)
	}
	return set, nil
}

// get is a document of at most MaxBytes.
func (f *Fetcher) get(ctx context.Context, text string) ([]byte, error) {
	if err := f.Check(text); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, text, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	r.Header.Set("User-Agent", "ashore")
	answer, err := f.client.Do(r)
	if err != nil {
		return nil, err // names the URL
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: the server answered %s", text, answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", text, err)
	}
	if len(body) > MaxBytes {
		return nil, fmt.Errorf("GET %s: %w: it has more than %d bytes", text, ErrDocument, MaxBytes)
	}
	return body, nil
}
