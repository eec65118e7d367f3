package authz

import (
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

// normalization is how the proxies of a scope rewrite paths. Their connectionSettings may add to that.
func normalization(sc *push.Scope) mesh.MeshConfig_ProxyPathNormalization_NormalizationType {
	if sc.ProxyConfig.GetConnectionSettings() != nil {
		return mesh.MeshConfig_ProxyPathNormalization_MERGE_SLASHES
	}
	return sc.Mesh.Config.GetPathNormalization().GetNormalization()
}

// normalPath is a path as proxies compare it. It is empty, unknown, when they may rewrite it.
// Source: istio.io, MeshConfig.pathNormalization.
func normalPath(path string, how mesh.MeshConfig_ProxyPathNormalization_NormalizationType) string {
	written, _, _ := strings.Cut(path, "?")
	rewritten := regexp.MustCompile("//|/\\.\\.?(/|$)|[%;\\\\\"<>^`{|}]")
	if how != mesh.MeshConfig_ProxyPathNormalization_NONE && rewritten.MatchString(written) {
		return ""
	}
	return path
}
