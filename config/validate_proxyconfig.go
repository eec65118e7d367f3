package config

import (
	"regexp"
	"strings"
)

// metaPrefix begins the names of variables that Istio's agent turns into metadata of the node.
const metaPrefix = "ISTIO_META_"

// ClusterVariable is the member of MeshConfig's defaultConfig.proxyMetadata with the cluster ID.
// Source: Istio.
const ClusterVariable = metaPrefix + "CLUSTER_ID"

// selfDiscoveryVariable lets Envoy prefer its own zone, as zoneAwareLbSetting says. Source: Istio.
const selfDiscoveryVariable = metaPrefix + "ENABLE_SELF_DISCOVERY"

// environment checks a variable with which Envoy is started.
func (c *checker) environment(path, name, value string) {
	switch {
	case strings.HasPrefix(path, meshSection+".") && name == ClusterVariable, name == selfDiscoveryVariable:
	case strings.HasPrefix(name, metaPrefix):
		c.warnf(path, "this has no effect: the metadata of a node is from the settings of its agent; remove it")
	case !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name):
		c.errorf(path, "%s is not the name of a variable: use letters, digits and \"_\"", quote(name))
	case strings.HasPrefix(name, "LD_") || name == "GLIBC_TUNABLES" || strings.HasPrefix(name, "ASHORE_"):
		c.errorf(path, "%s would change how programs are loaded, or is Ashore's own: remove it", quote(name))
	case strings.ContainsFunc(value, isControl):
		c.errorf(path, "the value holds line ends or control characters")
	}
}

// leastNumber is the smallest value of a field. Source: HTTP/2, RFC 9113, section 6.9.2, for windows.
func leastNumber(field string) float64 {
	switch field {
	case "ConnectionSettings.http_max_concurrent_streams":
		return 1
	case "ConnectionSettings.http2_initial_stream_window_size", "ConnectionSettings.http2_initial_connection_window_size":
		return 65535
	}
	return 0
}
