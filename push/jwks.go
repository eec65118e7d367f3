package push

import (
	"slices"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
)

// keyURLs returns the URLs of the keys that RequestAuthentications need, sorted, each once.
func keyURLs(objects Objects) []string {
	var out []string
	for k, o := range objects.From(config.Key{Kind: config.RequestAuthentication}) {
		if k.Kind != config.RequestAuthentication {
			break
		}
		for _, r := range o.Spec.(*security.RequestAuthentication).JwtRules {
			if u := KeyURL(r); u != "" {
				out = append(out, u)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
