package analyze

import "github.com/ashore-mesh/ashore/internal/feed"

// Code identifies a kind of finding: "IST0101". It never changes its meaning. docs/analysis.md
// describes each code.
type Code string

// The codes of Istio.
// Source: https://istio.io/latest/docs/reference/config/analysis
const (
	ReferenceNotFound     Code = "IST0101"
	InvalidObject         Code = "IST0106"
	ConflictingMeshHosts  Code = "IST0109"
	ConflictingSidecars   Code = "IST0110"
	SeveralDefaultSidecar Code = "IST0111"
	NoMatchingWorkloads   Code = "IST0127"
	HostNotInGateway      Code = "IST0132"
	ObjectWarning         Code = "IST0133"
	ConflictingGateways   Code = "IST0145"
	ConflictingTelemetry  Code = "IST0159"
	SeveralTelemetries    Code = "IST0160"
	EmptySubset           Code = "IST0173"
)

// The codes of Ashore.
const (
	ConflictingRoutes    Code = "ASH0001"
	ConflictingRules     Code = "ASH0003"
	UnusedRule           Code = "ASH0004"
	ConflictingPeers     Code = "ASH0006"
	IgnoredPeers         Code = "ASH0007"
	ServicePortInPolicy  Code = "ASH0008"
	UnknownPrincipal     Code = "ASH0009"
	ConflictingAddresses Code = "ASH0010"
	EmptyService         Code = "ASH0011"
	PlaintextToMesh      Code = "ASH0012"
	UnusedDelegate       Code = "ASH0013"
	ConflictingProxies   Code = "ASH0014"
)

// Severity returns feed.Error if the object, or a part of it, has no effect, or if traffic fails.
// It returns feed.Warning if the object probably does not do what is meant.
func (c Code) Severity() feed.Severity {
	switch c {
	case HostNotInGateway, ObjectWarning, ConflictingTelemetry, SeveralTelemetries, UnusedRule, ConflictingAddresses,
		PlaintextToMesh, UnusedDelegate, ConflictingProxies:
		return feed.Warning
	}
	if c.FromRegistry() {
		return feed.Warning
	}
	return feed.Error
}

// FromRegistry reports whether a registry, or a workload that joins, may supply what is missing.
// See Offline.
func (c Code) FromRegistry() bool {
	switch c {
	case NoMatchingWorkloads, EmptySubset, ServicePortInPolicy, UnknownPrincipal, EmptyService:
		return true
	}
	return false
}
