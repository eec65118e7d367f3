package ads

import (
	"math"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Kind is how resources of one type are delivered. Immutable.
type Kind struct {
	// TypeURL is that of the resources, "type.googleapis.com/envoy.config.cluster.v3.Cluster".
	TypeURL string
	// Wildcard says that a first request without names asks for everything.
	Wildcard bool
	// Whole says that in state of the world a response holds every resource, and what is missing in
	// it is gone (CDS and LDS). For other types a response holds what changed.
	Whole bool
	// Supersede says that a response may follow another one that is not acknowledged yet. Envoy
	// withholds the acknowledgement of clusters while one of them warms.
	Supersede bool
	// Single says that a response holds one resource at most. Envoy judges a secret once: after a
	// rejection it accepts the same content without using it, so that only a response of its own
	// tells which one it refuses.
	Single bool
	// Empty makes the resource that stands for a name of which nothing is known; nil: there is
	// none, and such a name is answered as removed.
	Empty func(name string) *resource.Resource
}

// mostFlights is how many responses may be on their way.
func (k *Kind) mostFlights() int {
	switch {
	case k.Supersede:
		return math.MaxInt // what is tracked has a bound of its own
	case k.Single:
		return maxFlights / 2
	}
	return 1
}

// Limits bound what one request may hold.
type Limits struct {
	// Names is how many resource names one subscription may hold. Zero means 200,000.
	Names int
	// NameBytes is the length of the longest name. Zero means 8 KiB.
	NameBytes int
	// Bytes is how long all names of one subscription may be together. Zero means 32 MiB.
	Bytes int
}

// MaxBytes is Bytes or its default.
func (l Limits) MaxBytes() int { return l.withDefaults().Bytes }

// withDefaults fills in what is zero.
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
