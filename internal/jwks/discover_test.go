package jwks

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// An issuer publishes where its keys are; keys of other issuers, and forbidden addresses, are
// refused.
func TestDiscover(t *testing.T) {
	t.Parallel()
	good := document(t, jose.JSONWebKey{Key: &ecKey(t).PublicKey, KeyID: "a"})
	url, f := serve(t, func(w http.ResponseWriter, r *http.Request) {
		self := "https://" + r.Host
		says := map[string]string{
			"/good":     `{"issuer":"` + self + `/good","jwks_uri":"` + self + `/keys"}`,
			"/other":    `{"issuer":"` + self + `/good","jwks_uri":"` + self + `/keys"}`,
			"/nothing":  `{"issuer":"` + self + `/nothing"}`,
			"/metadata": `{"issuer":"` + self + `/metadata","jwks_uri":"https://169.254.169.254/keys"}`,
			"/html":     `<html>`,
		}[strings.TrimSuffix(r.URL.Path, DiscoveryPath)]
		if r.URL.Path == "/keys" {
			says = string(good)
		}
		w.Write([]byte(says)) //nolint:errcheck // the client says
	})
	for issuer, want := range map[string]struct {
		is   error
		text string
	}{
		"/good":     {},
		"/other":    {ErrDocument, "it is of the issuer"},
		"/nothing":  {ErrDocument, "it has no jwks_uri"},
		"/metadata": {ErrAddress, "link-local"},
		"/html":     {ErrDocument, "invalid character"},
	} {
		set, err := f.Fetch(t.Context(), url+issuer+DiscoveryPath)
		switch {
		case want.is == nil && (err != nil || len(set.Keys("a", "ES256")) == 0):
			t.Errorf("%s: %v", issuer, err)
		case want.is != nil && (!errors.Is(err, want.is) || !strings.Contains(err.Error(), want.text)):
			t.Errorf("%s: got %v, want %q", issuer, err, want.text)
		}
	}
}
