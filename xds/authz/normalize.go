package authz

import (
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
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

// odd are characters of paths that proxies rewrite, or leave as they are, by rules of their own.
const odd = "%;\\\"<>^`{|}"

// normalPath is a path as proxies compare it, as observed on Envoy 1.40. It is empty, unknown, when it
// has odd characters, which they may rewrite.
// Source: istio.io, MeshConfig.pathNormalization; DEFAULT is BASE.
func normalPath(path string, how mesh.MeshConfig_ProxyPathNormalization_NormalizationType) string {
	if how == mesh.MeshConfig_ProxyPathNormalization_NONE {
		return path
	}
	path, query, hasQuery := strings.Cut(path, "?")
	if path == "" || strings.ContainsAny(path, odd) {
		return ""
	}
	path = withoutDots(path)
	switch how {
	case mesh.MeshConfig_ProxyPathNormalization_MERGE_SLASHES,
		mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		path = oneSlash(path)
	}
	if hasQuery {
		path += "?" + query
	}
	return path
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

// oneSlash writes several slashes as one; a path of nothing else keeps two.
func oneSlash(path string) string {
	if strings.Trim(path, "/") == "" && len(path) > 1 {
		return "//"
	}
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}
