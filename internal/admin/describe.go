package admin

// DescribeQuery names what to describe. One of the two is set.
type DescribeQuery struct {
	// Service is the host of a service.
	Service string `json:"service,omitempty"`
	// Workload is NAMESPACE/NAME of a workload or service account, an address, or the ID of a
	// connected proxy.
	Workload string `json:"workload,omitempty"`
}

// Description is what applies to a service or a workload.
type Description struct {
	// Services are the service, or the services that the workload serves, with its endpoints.
	Services []Service `json:"services"`
	// Objects are the VirtualServices and DestinationRules of the services. A gateway has its Gateways,
	// and their VirtualServices, too.
	Objects []AppliedObject `json:"objects"`
	// Workloads has what applies to the workloads and their ports. Equal ones are one.
	Workloads []WorkloadPolicies `json:"workloads"`
}

// AppliedObject is an object, and what it does.
type AppliedObject struct {
	Place
	// Effect is what it does: "routes requests for api.example".
	Effect string `json:"effect"`
}

// WorkloadPolicies is what applies to some workloads.
type WorkloadPolicies struct {
	// At are the workloads with their ports: "shop/api-1:8080".
	At []string `json:"at"`
	// MutualTLS is the mode, and what sets it: "STRICT, by PeerAuthentication shop/strict".
	MutualTLS string `json:"mutualTLS"`
	// Policies are the policies that select the workloads, each "AuthorizationPolicy shop/readers".
	Policies []string `json:"policies"`
}
