package push

import (
	"strconv"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
)

// normalPath is a path as proxies compare it. Source: istio.io, MeshConfig.pathNormalization; DEFAULT is BASE.
func normalPath(path string, how mesh.MeshConfig_ProxyPathNormalization_NormalizationType) string {
	if path == "" || how == mesh.MeshConfig_ProxyPathNormalization_NONE {
		return path
	}
	path, query, hasQuery := strings.Cut(path, "?")
	path = strings.ReplaceAll(path, `\`, "/")
	if how == mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES {
		path = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", "/", "%5c", "/").Replace(path)
	}
	path = withoutDots(decodePlain(path))
	if how == mesh.MeshConfig_ProxyPathNormalization_MERGE_SLASHES || how == mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES {
		for strings.Contains(path, "//") {
			path = strings.ReplaceAll(path, "//", "/")
		}
	}
	if hasQuery {
		path += "?" + query
	}
	return path
}

// decodePlain decodes letters, digits and "-._~".
func decodePlain(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if c := byte(n); err == nil && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0) {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// withoutDots removes "." and "..", as RFC 3986 5.2.4 says.
func withoutDots(path string) string {
	var out []string
	segments := strings.Split(path, "/")
	for i, s := range segments {
		switch {
		case s == "..":
			if len(out) > 1 {
				out = out[:len(out)-1]
			}
		case s != ".":
			out = append(out, s)
			continue
		}
		if i == len(segments)-1 {
			out = append(out, "")
		}
	}
	return strings.Join(out, "/")
}
