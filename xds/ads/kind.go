package ads

import (
	"math"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Kind is how resources of one type are delivered. Immutable.
type Kind struct {
	// TypeURL is that of the resources, "type.googleapis.com/envoy.config.cluster.v3.Cluster".
	TypeURL string
	// Wildcard means that a first request without names asks for everything.
	Wildcard bool
	// Whole means that in state of the world a response has every resource, and what is missing is
	// removed (CDS and LDS). For other types a response has what changed.
	Whole bool
	// Supersede means that a response may follow another one that is not acknowledged. Envoy
	// withholds the acknowledgement of clusters while one of them warms.
	Supersede bool
	// Single means that a response has one resource at most. Envoy checks a secret once: after a
	// rejection it accepts the same content without using it, so a rejection must name one secret.
	Single bool
	// Empty makes the answer for a name that does not exist; nil: such a name is sent as removed.
	Empty func(name string) *resource.Resource
}

// maxTracked is how many responses are tracked until they are acknowledged.
const maxTracked = 32

// maxPending is how many responses may be pending.
func (k *Kind) maxPending() int {
	switch {
	case k.Supersede:
		return math.MaxInt // the oldest are not tracked any more
	case k.Single:
		return maxTracked / 2
	}
	return 1
}

// Limits are the limits of one request or subscription.
type Limits struct {
	// Names is the maximum number of resource names. Zero means 200,000.
	Names int
	// NameBytes is the maximum length of a name. Zero means 8 KiB.
	NameBytes int
	// Bytes is the maximum length of all names of one subscription. Zero means 32 MiB.
	Bytes int
}

// MaxBytes is Bytes or its default.
func (l Limits) MaxBytes() int { return l.withDefaults().Bytes }

func (l Limits) withDefaults() Limits {
	if l.Names == 0 {
		l.Names = 200_000
	}
	if l.NameBytes == 0 {
		l.NameBytes = 8 << 10
	}
	if l.Bytes == 0 {
		l.Bytes = 32 << 20
	}
	return l
}
