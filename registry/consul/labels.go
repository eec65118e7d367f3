package consul

import "strings"

// Keys of metadata that configure the mesh. They do not become labels. See docs/consul.md.
const (
	keyPrefix         = "ashore-"
	keyPort           = "ashore-port"
	keyPortPrefix     = "ashore-port-"
	keyProtocol       = "ashore-protocol"
	keyServiceAccount = "ashore-service-account"
	keyTLSMode        = "ashore-tls-mode"
	keyLocality       = "ashore-locality"
	keyNetwork        = "ashore-network"
	keyExternal       = "ashore-external"
)

// tlsModeLabel is the label that says whether an instance accepts Istio mutual TLS. Source: Istio,
// label security.istio.io/tlsMode.
const tlsModeLabel = "security.istio.io/tlsMode"

// labelsOf returns the labels for tags and metadata. A tag "key=value" or "key|value" becomes the
// label key=value; any other tag becomes tag="true". Metadata overrides tags; the first of several
// tags wins.
func labelsOf(tags []string, meta map[string]string) map[string]string {
	var out map[string]string
	put := func(k, v string) {
		if out == nil {
			out = make(map[string]string, len(tags)+len(meta))
		}
		if _, there := out[k]; !there {
			out[k] = v
		}
	}
	for k, v := range meta {
		if !strings.HasPrefix(k, keyPrefix) {
			put(k, v)
		}
	}
	for _, t := range tags {
		i := strings.IndexAny(t, "=|")
		switch {
		case t == "" || i == 0:
		case i < 0:
			put(t, "true")
		default:
			put(t[:i], t[i+1:])
		}
	}
	return out
}
