package authz

import (
	"encoding/hex"
	"path"
	"regexp"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
)

// normalHost is a host as proxies compare it: without one dot at the end of the name or the port.
// Source: Envoy, strip_trailing_host_dot.
func normalHost(host string) string {
	i := strings.LastIndexByte(host, '.')
	if i >= 0 && (i == len(host)-1 || host[i+1] == ':') {
		return host[:i] + host[i+1:]
	}
	return host
}

// pathOf is normalPath for the proxies of a scope. Their connectionSettings may change more.
func pathOf(text string, sc *push.Scope) string {
	if sc.ProxyConfig.GetConnectionSettings() != nil && regexp.MustCompile(`(?i)//|%2f|%5c`).MatchString(text) {
		return ""
	}
	return normalPath(text, sc.Mesh.Config.GetPathNormalization().GetNormalization())
}

// normalPath is a path as proxies compare it. It is empty if the result of their normalization is
// unknown: with encoded or unusual characters, and with both dot segments and empty segments.
// Source: istio.io, MeshConfig.pathNormalization.
func normalPath(text string, how mesh.MeshConfig_ProxyPathNormalization_NormalizationType) string {
	if text == "" || how == mesh.MeshConfig_ProxyPathNormalization_NONE {
		return text
	}
	written, query, asked := strings.Cut(text, "?")
	if how == mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES {
		written = regexp.MustCompile("(?i)%2f|%5c").ReplaceAllString(written, "/")
	}
	unreserved := regexp.MustCompile("(?i)%(2[de]|3[0-9]|[46][1-9a-f]|[57][0-9a]|5f|7e)") // RFC 3986, section 2.3
	written = unreserved.ReplaceAllStringFunc(written, func(code string) string {
		b, _ := hex.DecodeString(code[1:]) // two hexadecimal digits
		return string(b)
	})
	written = strings.ReplaceAll(written, `\`, "/")
	dots, empty := regexp.MustCompile(`/\.\.?(/|$)`).MatchString(written), strings.Contains(written, "//")
	switch {
	case regexp.MustCompile("[%;\"<>^`{|}]").MatchString(written), dots && empty:
		return ""
	case empty && how != mesh.MeshConfig_ProxyPathNormalization_DEFAULT &&
		how != mesh.MeshConfig_ProxyPathNormalization_BASE:
		written = regexp.MustCompile("//+").ReplaceAllString(written, "/")
	case dots:
		folder := regexp.MustCompile(`/(\.\.?)?$`).MatchString(written)
		if written = path.Clean(written); folder && written != "/" {
			written += "/"
		}
	}
	if asked {
		written += "?" + query
	}
	return written
}
