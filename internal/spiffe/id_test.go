package spiffe

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
)

// An ID is read in its exact form and written as it was read; everything else is refused.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"spiffe://cluster.local/ns/shop/sa/web", "spiffe://a-b_c.9/ns/N_s.1/sa/A"} {
		id, err := Parse(s)
		if err != nil || id.String() != s || id.URL().String() != s {
			t.Errorf("%q: read as %q, error %v", s, id, err)
		}
	}
	for _, s := range []string{
		"", "spiffe://", "cluster.local/ns/a/sa/b", "SPIFFE://td/ns/a/sa/b", "https://td/ns/a/sa/b",
		"spiffe://td/ns/a/sa/", "spiffe://td/ns//sa/b", "spiffe:///ns/a/sa/b", "spiffe://td/ns/a/sa/b/", "spiffe://td/ns/a/sa/b/c", "spiffe://td/sa/a/ns/b",
		"spiffe://TD/ns/a/sa/b", "spiffe://td:80/ns/a/sa/b", "spiffe://u@td/ns/a/sa/b", "spiffe://td/ns/a/sa/b?x=y", "spiffe://td/ns/a/sa/b#x",
		"spiffe://td/ns/../sa/b", "spiffe://td/ns/./sa/b", "spiffe://td/ns/a/sa/..", "spiffe://td/ns/a%2fsa%2froot/sa/b", "spiffe://td/ns/a b/sa/c", "spiffe://td/ns/ä/sa/b",
		"spiffe://td/ns/a/sa/b\x00", "spiffe://td/ns/a/sa/" + strings.Repeat("x", 2000),
	} {
		if id, err := Parse(s); err == nil {
			t.Errorf("%.80q is read as %v", s, id)
		}
	}
}

// The zero ID is empty.
func TestZero(t *testing.T) {
	t.Parallel()
	if s := (ID{}).String(); s != "" {
		t.Errorf("the zero ID is %q", s)
	}
}

// A certificate names one identity or none.
func TestOf(t *testing.T) {
	t.Parallel()
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	one := uri("spiffe://td/ns/a/sa/b")
	if id, err := Of(&x509.Certificate{URIs: []*url.URL{one}}); err != nil || id != (ID{"td", "a", "b"}) {
		t.Errorf("got %v, error %v", id, err)
	}
	for _, uris := range [][]*url.URL{nil, {one, one}, {uri("spiffe://td/ns/a/sa/b?x")},
		{uri("https://td/ns/a/sa/b")}} {
		if id, err := Of(&x509.Certificate{URIs: uris}); err == nil {
			t.Errorf("%v names %v", uris, id)
		}
	}
}

// What can be read is written back as it was, and its parts make it again.
func FuzzParse(f *testing.F) {
	f.Add("spiffe://cluster.local/ns/shop/sa/web")
	f.Add("spiffe://td/ns/a%2f/sa/b")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := Parse(s)
		if err != nil {
			return
		}
		if id.String() != s || id.URL().String() != s {
			t.Fatalf("%q became %q and %q", s, id, id.URL())
		}
		if again, err := New(id.TrustDomain, id.Namespace, id.ServiceAccount); err != nil || again != id {
			t.Fatalf("%v became %v: %v", id, again, err)
		}
	})
}
