package admin

// Service is one destination that the mesh knows.
type Service struct {
	Host      string `json:"host"`
	Namespace string `json:"namespace"`
	// Addresses are its virtual ones, single or prefixes; Allocated means that Ashore allocated them.
	Addresses []string      `json:"addresses,omitempty"`
	Allocated bool          `json:"allocated,omitempty"`
	Ports     []ServicePort `json:"ports"`
	// Resolution is how its endpoints are found: STATIC, DNS, DNS_ROUND_ROBIN, NONE or DYNAMIC_DNS.
	Resolution string `json:"resolution"`
	// Location is MESH_INTERNAL or MESH_EXTERNAL.
	Location string `json:"location"`
	// ExportTo lists namespaces; empty: the mesh's default.
	ExportTo []string          `json:"exportTo,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// SubjectAltNames are the identities that its workloads may have; empty: those of its
	// endpoints.
	SubjectAltNames []string `json:"subjectAltNames,omitempty"`
	// Sources are who has it, the deciding one first.
	Sources []ServiceSource `json:"sources"`
	// Health counts its endpoints that are in use.
	Health HealthCount `json:"health"`
	// Endpoints are the active ones, if they were requested.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// ServicePort is one port of a service.
type ServicePort struct {
	Number   uint32 `json:"number"`
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
}

// ServiceSource is who has a service.
type ServiceSource struct {
	Place
	// Endpoints counts those of this source that are in use.
	Endpoints int `json:"endpoints"`
}

// Place is where something of a service comes from.
type Place struct {
	// Source is the name of the source among the settings, or "workloads" for what registered
	// itself.
	Source string `json:"source"`
	// Object is what was read there: "ServiceEntry shop/web", "Consul service web".
	Object string `json:"object,omitempty"`
	// File and Line are where that is written; empty and zero when it did not come from a file.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// HealthCount counts endpoints by their health.
type HealthCount struct {
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"`
	Draining  int `json:"draining"`
}

// Total is how many there are.
func (h HealthCount) Total() int { return h.Healthy + h.Unhealthy + h.Draining }

// Endpoint is one workload of a service.
type Endpoint struct {
	Address string `json:"address"`
	// Ports are its own, in the order of the service's.
	Ports []EndpointPort `json:"ports"`
	// Health is healthy, unhealthy or draining. NotServed are ports of its own that are not served
	// although it is healthy: callers are not sent there.
	Health    string   `json:"health"`
	NotServed []uint32 `json:"notServed,omitempty"`
	// Identity is who it has to prove to be, a SPIFFE ID; empty: nobody.
	Identity string `json:"identity,omitempty"`
	// ServiceAccount is the name in that, Namespace the workload's, and Workload its name.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	Namespace      string `json:"namespace"`
	Workload       string `json:"workload,omitempty"`
	// TLSMode is istio when it takes the mesh's mutual TLS.
	TLSMode string `json:"tlsMode,omitempty"`
	// Locality is region/zone/subzone.
	Locality string            `json:"locality,omitempty"`
	Network  string            `json:"network,omitempty"`
	Weight   uint32            `json:"weight"`
	Labels   map[string]string `json:"labels,omitempty"`
	// From is where it comes from.
	From Place `json:"from"`
}

// EndpointPort is where an endpoint listens for a port of its service.
type EndpointPort struct {
	Service uint32 `json:"service"`
	Name    string `json:"name,omitempty"`
	Number  uint32 `json:"number"`
}

// ServiceQuery selects services.
type ServiceQuery struct {
	// Namespace and Host select some; empty: all.
	Namespace string `json:"namespace"`
	Host      string `json:"host"`
	// Endpoints adds the endpoints.
	Endpoints bool `json:"endpoints"`
}
