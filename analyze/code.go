package analyze

import "slices"

// Code identifies a kind of finding: "IST0101". It never changes its meaning.
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
	EmptySubset           Code = "IST0173"
)

// The codes of Ashore.
const (
	ConflictingRoutes    Code = "ASH0001"
	UnservedRoutes       Code = "ASH0002"
	ConflictingRules     Code = "ASH0003"
	UnusedRule           Code = "ASH0004"
	EmptyEgressListener  Code = "ASH0005"
	ConflictingPeers     Code = "ASH0006"
	IgnoredPeers         Code = "ASH0007"
	ServicePortInPolicy  Code = "ASH0008"
	UnknownPrincipal     Code = "ASH0009"
	ConflictingAddresses Code = "ASH0010"
	EmptyService         Code = "ASH0011"
	PlaintextToMesh      Code = "ASH0012"
)

// CodeInfo describes a code.
type CodeInfo struct {
	Code Code
	// Name is Istio's name of the message, or ours in the same style.
	Name     string
	Severity Severity
	// Registry says that a registry, or a workload that joins, may supply what is missing: see Offline.
	Registry bool
	// Meaning is one sentence without a final period.
	Meaning string
}

// Codes describes every code, in the order of the reference in docs/analysis.md.
func Codes() []CodeInfo {
	return []CodeInfo{
		{
			ReferenceNotFound, "ReferencedResourceNotFound", Error, false,
			"A host, port, subset, Gateway or extension provider that is named does not exist",
		},
		{
			InvalidObject, "SchemaValidationError", Error, false,
			"A file or an object is invalid (ashorectl analyze alone)",
		},
		{
			ConflictingMeshHosts, "ConflictingMeshGatewayVirtualServiceHosts", Error, false,
			"Another VirtualService for the same host on sidecars comes first",
		},
		{
			ConflictingSidecars, "ConflictingSidecarWorkloadSelectors", Error, false,
			"Another Sidecar with the same workloadSelector comes first",
		},
		{
			SeveralDefaultSidecar, "MultipleSidecarsWithoutWorkloadSelectors", Error, false,
			"Another Sidecar for the whole namespace comes first",
		},
		{
			NoMatchingWorkloads, "NoMatchingWorkloadsFound", Warning, true,
			"A policy selects no declared workload",
		},
		{
			HostNotInGateway, "VirtualServiceHostNotFoundInGateway", Warning, false,
			"No server of the Gateway admits the host of a VirtualService",
		},
		{
			ObjectWarning, "SchemaWarning", Warning, false,
			"A field has no effect, or probably not the one that is meant (ashorectl analyze alone)",
		},
		{
			ConflictingGateways, "ConflictingGateways", Error, false,
			"A server on the same port of the same proxies comes first",
		},
		{
			EmptySubset, "DestinationRuleSubsetNotSelectPods", Warning, true,
			"No endpoint has the labels of a subset",
		},
		{
			ConflictingRoutes, "ConflictingGatewayRoutes", Error, false,
			"A VirtualService on the same gateway takes the same requests first",
		},
		{
			UnservedRoutes, "GatewayWithoutServerForRoutes", Warning, false,
			"The Gateway has no server for routes of this kind (http, tcp or tls)",
		},
		{
			ConflictingRules, "ConflictingDestinationRules", Error, false,
			"Another DestinationRule of the same namespace and host sets the same part first",
		},
		{
			UnusedRule, "UnusedDestinationRule", Warning, false,
			"No client finds the DestinationRule",
		},
		{
			EmptyEgressListener, "EgressListenerWithoutService", Warning, true,
			"No imported service has the port of an egress listener",
		},
		{
			ConflictingPeers, "ConflictingPeerAuthentications", Error, false,
			"Another PeerAuthentication for the same workloads comes first",
		},
		{
			IgnoredPeers, "IgnoredPeerAuthentication", Error, false,
			"A PeerAuthentication of the root namespace has a selector",
		},
		{
			ServicePortInPolicy, "ServicePortInPolicy", Warning, true,
			"An AuthorizationPolicy names the port of a service whose workloads listen at another port",
		},
		{
			UnknownPrincipal, "UnknownPrincipal", Warning, true,
			"A DENY policy names a caller that does not exist",
		},
		{
			ConflictingAddresses, "ConflictingServiceAddresses", Warning, false,
			"Another service has the same address and port",
		},
		{
			EmptyService, "ServiceWithoutEndpoints", Warning, true,
			"A ServiceEntry has no endpoints",
		},
		{
			PlaintextToMesh, "PlaintextToMeshWorkloads", Warning, false,
			"Clients send plaintext to workloads that take mutual TLS",
		},
	}
}

// info describes one code.
func info(code Code) CodeInfo {
	all := Codes()
	return all[slices.IndexFunc(all, func(i CodeInfo) bool { return i.Code == code })]
}
