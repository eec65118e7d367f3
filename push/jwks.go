package push

import (
	"slices"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
)

// KeyUsers returns the RequestAuthentications that need the keys at a URL.
func KeyUsers(objects Objects, url string) (out []*config.Object) {
	for k, o := range objects.From(config.Key{Kind: config.RequestAuthentication}) {
		if k.Kind != config.RequestAuthentication {
			break
		}
		rules := o.Spec.(*security.RequestAuthentication).JwtRules
		if slices.ContainsFunc(rules, func(r *security.JWTRule) bool { return KeyURL(r) == url }) {
			out = append(out, o)
		}
	}
	return out
}

// keyTimeouts returns the URLs of the keys that RequestAuthentications need, with the time that a
// fetch may take: the longest that a rule of the URL sets, or zero.
func keyTimeouts(objects Objects) map[string]time.Duration {
	out := map[string]time.Duration{}
	for k, o := range objects.From(config.Key{Kind: config.RequestAuthentication}) {
		if k.Kind != config.RequestAuthentication {
			break
		}
		for _, r := range o.Spec.(*security.RequestAuthentication).JwtRules {
			if u := KeyURL(r); u != "" {
				out[u] = max(out[u], r.GetTimeout().AsDuration())
			}
		}
	}
	return out
}
