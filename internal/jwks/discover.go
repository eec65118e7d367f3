package jwks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// DiscoveryPath is where an issuer tells about itself, after its own URL.
// Source: OpenID Connect Discovery 1.0, section 4.
const DiscoveryPath = "/.well-known/openid-configuration"

// discover asks an issuer where its keys are. What answers in the name of another issuer is
// refused, as section 4.3 wants it.
func (f *Fetcher) discover(ctx context.Context, issuer string) (string, error) {
	at := issuer + DiscoveryPath
	body, err := f.get(ctx, at)
	if err != nil {
		return "", err
	}
	var says struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	switch err := json.Unmarshal(body, &says); {
	case err != nil:
		return "", fmt.Errorf("GET %s: %w: %w", at, ErrDocument, err)
	case strings.TrimSuffix(says.Issuer, "/") != strings.TrimSuffix(issuer, "/"):
		return "", fmt.Errorf("GET %s: %w: it tells of the issuer %.200q", at, ErrDocument, says.Issuer)
	case says.Keys == "":
		return "", fmt.Errorf("GET %s: %w: it has no jwks_uri", at, ErrDocument)
	}
	return says.Keys, nil
}
