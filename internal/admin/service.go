package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Service is one destination that the mesh knows.
type Service struct {
	Host      string `json:"host"`
	Namespace string `json:"namespace"`
	// Addresses are its virtual ones, single or prefixes; Allocated says that Ashore gave them.
	Addresses []string      `json:"addresses,omitempty"`
	Allocated bool          `json:"allocated,omitempty"`
	Ports     []ServicePort `json:"ports"`
	// Resolution is how its endpoints are found: STATIC, DNS, DNS_ROUND_ROBIN or NONE.
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
	// Identities are who its endpoints have to prove to be, sorted, each once.
	Identities []string `json:"identities,omitempty"`
	// Health counts its endpoints that are in use.
	Health HealthCount `json:"health"`
	// Endpoints are those that are in use, when they were asked for.
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
	// Endpoints counts those of this source that are in use, Unused those that are not: a source
	// that stands before it has them too, or has others (setting merge.endpoints), or their
	// addresses are found in another way than the service says.
	Endpoints int `json:"endpoints"`
	Unused    int `json:"unused,omitempty"`
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
	// Health is healthy, unhealthy or draining.
	Health string `json:"health"`
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

// ServiceQuery says which services are asked for.
type ServiceQuery struct {
	// Namespace and Host name some; empty: all.
	Namespace, Host string
	// Endpoints asks for those too.
	Endpoints bool
	// Watch goes on with what changes.
	Watch bool
}

// What a ServiceEvent says.
const (
	// ServiceIs: the service is like that.
	ServiceIs = "is"
	// ServiceGone: there is none any more; its host and namespace alone are told.
	ServiceGone = "gone"
	// ServicesListed: all that there are have been told; what follows has changed. No service is
	// told.
	ServicesListed = "listed"
)

// ServiceEvent is one line of the answer.
type ServiceEvent struct {
	Event   string  `json:"event"`
	Service Service `json:"service"`
}

// Catalog tells of services. Safe for concurrent use.
type Catalog interface {
	// Services hands emit each service that q asks for, in the order of hosts, with q.Watch then
	// ServicesListed and every service that changes, until ctx ends, which is no error. Of several
	// changes of one service that happen while emit is busy, the last state alone is told. Errors:
	// ErrNotFound when nothing has the name that q asks for, unless it watches; emit's.
	Services(ctx context.Context, q ServiceQuery, emit func(ServiceEvent) error) error
}

// services answers with a stream.
func (s *Server) services(w http.ResponseWriter, r *http.Request) error {
	q, err := serviceQuery(r.URL.Query())
	if err != nil {
		return err
	}
	release, err := s.stream(q.Watch)
	if err != nil {
		return err
	}
	defer release()
	return s.lines(w, r, q.Watch, func(ctx context.Context, emit func(any) error) error {
		return s.cfg.Catalog.Services(ctx, q, func(e ServiceEvent) error { return emit(e) })
	})
}

// serviceQuery is what is asked for. Errors: ErrInvalid.
func serviceQuery(v url.Values) (ServiceQuery, error) {
	q := ServiceQuery{Namespace: v.Get("namespace"), Host: v.Get("host")}
	for name, into := range map[string]*bool{"endpoints": &q.Endpoints, "watch": &q.Watch} {
		if text := v.Get(name); text != "" {
			b, err := strconv.ParseBool(text)
			if err != nil {
				return q, NewError(ErrInvalid, fmt.Sprintf("%s is %.40q: want true or false", name, text))
			}
			*into = b
		}
	}
	return q, nil
}

// Services hands emit what Catalog.Services does.
func (c *Client) Services(ctx context.Context, q ServiceQuery, emit func(ServiceEvent) error) error {
	v := url.Values{"namespace": {q.Namespace}, "host": {q.Host}, "endpoints": {strconv.FormatBool(q.Endpoints)},
		"watch": {strconv.FormatBool(q.Watch)}}
	return readLines(ctx, c, "/v1/services", v, q.Watch, "services were watched", emit)
}
