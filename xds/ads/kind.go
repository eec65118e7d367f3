package ads

import "github.com/ashore-mesh/ashore/xds/resource"

// Kind is how resources of one type are delivered. Immutable.
type Kind struct {
	// TypeURL is that of the resources, "type.googleapis.com/envoy.config.cluster.v3.Cluster".
	TypeURL string
	// Whole means that a first request without names asks for everything, and that in state of the
	// world a response has every resource: what is missing is removed (CDS and LDS). For other types a
	// response has what changed.
	Whole bool
	// MaxPending is how many responses may be pending; zero means one. Envoy withholds the
	// acknowledgement of clusters while one of them warms.
	MaxPending int
	// Single means that a response has one resource at most. Envoy checks a secret once: after a
	// rejection it accepts the same content without using it, so a rejection must name one secret.
	Single bool
	// Empty makes the answer for a name that does not exist; nil: such a name is sent as removed.
	Empty func(name string) *resource.Resource
}

const (
	// maxNames is the maximum number of resource names of one message or subscription.
	maxNames = 200_000
	// maxText is the maximum size of a name, version, nonce or type, in bytes.
	maxText = 8 << 10
)
