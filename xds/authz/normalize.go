package authz

import (
	"slices"
	"strconv"
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

// normalPath is a path as proxies compare it, as observed on Envoy 1.40.
// Source: istio.io, MeshConfig.pathNormalization; DEFAULT is BASE.
func normalPath(path string, how mesh.MeshConfig_ProxyPathNormalization_NormalizationType) string {
	if path == "" || how == mesh.MeshConfig_ProxyPathNormalization_NONE {
		return path
	}
	path, query, hasQuery := strings.Cut(path, "?")
	if how == mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES {
		path = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", `\`, "%5c", `\`).Replace(path)
	}
	path = encodeOdd(strings.ReplaceAll(withoutDotParameters(path), `\`, "/"))
	path = withoutDots(decodePlain(path))
	decode := how == mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES
	if decode || how == mesh.MeshConfig_ProxyPathNormalization_MERGE_SLASHES {
		path = oneSlash(path)
	}
	if hasQuery {
		path += "?" + query
	}
	return path
}

// withoutDotParameters drops the parameters of "." and "..", where a "/" is before them and they
// are not encoded.
func withoutDotParameters(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments[1:] {
		if dots, _, ok := strings.Cut(s, ";"); ok && (dots == "." || dots == "..") {
			segments[i+1] = dots
		}
	}
	return strings.Join(segments, "/")
}

// encodeOdd encodes what proxies leave in no path.
func encodeOdd(path string) string {
	replace := strings.NewReplacer(
		`"`, "%22", "<", "%3C", ">", "%3E", "^", "%5E", "`", "%60", "{", "%7B", "|", "%7C", "}", "%7D")
	return replace.Replace(path)
}

// decodePlain decodes letters, digits and "-._~". Where that makes a new code, the "%" of it is
// encoded.
func decodePlain(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		c, ok := encodedPlain(s[i:])
		if !ok {
			out = append(out, s[i])
			continue
		}
		out, i = append(out, c), i+2
		at := len(out) - 3 // of a "%" for which this is the second digit, or else the first
		if at < 0 || out[at] != '%' || !isHex(out[at+1]) || !isHex(c) {
			at++
			if at < 0 || out[at] != '%' || !isHex(c) || i+1 >= len(s) || !isHex(s[i+1]) {
				continue
			}
		}
		out = slices.Insert(out, at+1, '2', '5')
	}
	return string(out)
}

// encodedPlain reads a code at the beginning of s that proxies decode.
func encodedPlain(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' || !isHex(s[1]) || !isHex(s[2]) {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:3], 16, 8)
	c = byte(n)
	plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
	return c, err == nil && plain
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
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
