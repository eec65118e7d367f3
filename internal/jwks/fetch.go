package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// ErrURL means that nothing is fetched from a URL.
var ErrURL = errors.New("keys are not fetched from this URL")

// DiscoveryPath, after the URL of an issuer, is the document that names the URL of its keys.
// Source: OpenID Connect Discovery 1.0, section 4.
const DiscoveryPath = "/.well-known/openid-configuration"

// Config says from where documents are fetched. The zero value is the safe default.
type Config struct {
	// Allow are networks that are allowed although they are loopback, link-local or a metadata
	// service. A URL with an address in them needs no TLS: anybody on the network path can then add
	// keys.
	Allow []netip.Prefix
	// Roots verify servers. Nil: those of the system.
	Roots *x509.CertPool
}

// Fetcher fetches documents. It keeps no connections and follows no redirects. Safe for concurrent
// use.
type Fetcher struct {
	config Config
	client *http.Client
}

// NewFetcher makes a fetcher.
func NewFetcher(c Config) *Fetcher {
	f := &Fetcher{config: c}
	// The address is checked when it is dialled: a name may resolve to another one the next time.
	dialer := &net.Dialer{Control: f.control}
	f.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy would be dialled instead of the address to check
			DialContext:            dialer.DialContext,
			DisableKeepAlives:      true,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots},
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
	return f
}

// control checks the address that is about to be dialled.
func (f *Fetcher) control(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrAddress, address, err)
	}
	return checkAddress(a.Addr(), f.config.Allow)
}

// check returns why nothing is fetched from a URL, whatever its address. Errors: ErrURL.
func (f *Fetcher) check(u *url.URL) error {
	switch {
	case u.Scheme == "http" && !f.allowed(u.Hostname()):
		return fmt.Errorf("%w: it is http, want https: whoever is on the way could put keys in", ErrURL)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%w: its scheme is %.20q, want https", ErrURL, u.Scheme)
	case u.Hostname() == "":
		return fmt.Errorf("%w: it names no host", ErrURL)
	case u.User != nil:
		return fmt.Errorf("%w: it holds a user name or a password", ErrURL)
	}
	return nil
}

// allowed reports whether host is an address that the configuration allows.
func (f *Fetcher) allowed(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && slices.ContainsFunc(f.config.Allow, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Fetch fetches the keys at a URL. If the URL ends with DiscoveryPath, the document there names the
// URL of the keys. Errors: ErrURL, ErrAddress, ErrDocument, or those of the network.
func (f *Fetcher) Fetch(ctx context.Context, at string) (*Set, error) {
	if issuer, ok := strings.CutSuffix(at, DiscoveryPath); ok {
		var err error
		if at, err = f.discover(ctx, issuer); err != nil {
			return nil, err
		}
	}
	body, err := f.get(ctx, at)
	if err != nil {
		return nil, err
	}
	set, err := Parse(body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", at, err)
	}
	return set, nil
}

// discover returns the URL of an issuer's keys. A document of another issuer is refused, as section
// 4.3 of OpenID Connect Discovery requires.
func (f *Fetcher) discover(ctx context.Context, issuer string) (string, error) {
	at := issuer + DiscoveryPath
	body, err := f.get(ctx, at)
	if err != nil {
		return "", err
	}
	var doc struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	err = json.Unmarshal(body, &doc)
	switch {
	case err != nil:
	case strings.TrimSuffix(doc.Issuer, "/") != strings.TrimSuffix(issuer, "/"):
		err = fmt.Errorf("it is of the issuer %.200q", doc.Issuer)
	case doc.Keys == "":
		err = errors.New("it has no jwks_uri")
	}
	if err != nil {
		return "", fmt.Errorf("GET %s: %w: %w", at, ErrDocument, err)
	}
	return doc.Keys, nil
}

// get fetches a document of at most MaxBytes.
func (f *Fetcher) get(ctx context.Context, at string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if err := f.check(r.URL); err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	r.Header.Set("User-Agent", "ashore")
	answer, err := f.client.Do(r)
	if err != nil {
		return nil, err // names the URL
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(http.MaxBytesReader(nil, answer.Body, MaxBytes))
	switch {
	case answer.StatusCode != http.StatusOK:
		err = fmt.Errorf("the server answered %s", answer.Status)
	case err != nil && len(body) >= MaxBytes:
		err = fmt.Errorf("%w: it has more than %d bytes", ErrDocument, MaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", at, err)
	}
	return body, nil
}
