package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// firstPolicy is the marker of the policy of the whole mesh before any change.
const firstPolicy = "marker-policy-first"

// Shape is the size of a generated mesh.
type Shape struct {
	// Services and Endpoints: how many services, and how many endpoints each has.
	Services  int
	Endpoints int
	// Namespaces are what the services are spread over.
	Namespaces int
	// Scoped adds a Sidecar to each namespace that imports only its own.
	Scoped bool
	// Policies, when there are some, make mutual TLS strict in the whole mesh, and are so many
	// AuthorizationPolicies: one of the whole mesh, the others each of one workload.
	Policies int
	// Filters is how many EnvoyFilters there are: every second one is of the whole mesh and sets the
	// connect timeout of one service, the others each limit the requests to one workload.
	Filters int
}

func (s Shape) Namespace(i int) string { return fmt.Sprintf("ns%d", i%s.Namespaces) }

// Account is the service account of service i.
func (s Shape) Account(i int) string { return fmt.Sprintf("sa%d", i) }

func (s Shape) Host(i int) string {
	return fmt.Sprintf("svc%d.%s.svc.cluster.local", i, s.Namespace(i))
}

// EndpointIP is the address of endpoint e of service i; simulated proxies take these addresses.
func (s Shape) EndpointIP(i, e int) string {
	n := i*s.Endpoints + e
	return fmt.Sprintf("10.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff)
}

// Names of the files of a mesh.
func serviceName(i int) string { return fmt.Sprintf("svc%05d.yaml", i) }
func routeName(i int) string   { return fmt.Sprintf("route%05d.yaml", i) }
func policyName(i int) string  { return fmt.Sprintf("policy%05d.yaml", i) }

// serviceFile is service i; extra, when not empty, is the address of one more endpoint.
func (s Shape) serviceFile(i int, extra string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: svc%d
  namespace: %s
spec:
  hosts: [%s]
  addresses: [240.%d.%d.%d]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: 8080, name: http, protocol: HTTP}
  - {number: 9090, name: tcp, protocol: TCP}
  endpoints:
`, i, s.Namespace(i), s.Host(i), i>>16&0xff, i>>8&0xff, i&0xff)
	for e := range s.Endpoints {
		fmt.Fprintf(&b, "  - {address: %s, labels: {app: svc%d, version: v%d}, serviceAccount: %s}\n",
			s.EndpointIP(i, e), i, e%2+1, s.Account(i))
	}
	if extra != "" {
		fmt.Fprintf(&b, "  - {address: %s, labels: {app: svc%d, version: v1}, serviceAccount: %s}\n", extra, i,
			s.Account(i))
	}
	return b.String()
}

// routeFile is the DestinationRule and VirtualService of service i; marker is a header that the
// route sets.
func (s Shape) routeFile(i int, marker string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: svc%[1]d, namespace: %[2]s}
spec:
  host: %[3]s
  trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}, outlierDetection: {consecutive5xxErrors: 5}}
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: svc%[1]d, namespace: %[2]s}
spec:
  hosts: [%[3]s]
  http:
  - match: [{uri: {prefix: /api}}]
    headers: {request: {set: {x-marker: "%[4]s"}}}
    timeout: 5s
    retries: {attempts: 3, perTryTimeout: 1s}
    route:
    - {destination: {host: %[3]s, subset: v1}, weight: 90}
    - {destination: {host: %[3]s, subset: v2}, weight: 10}
  - route:
    - destination: {host: %[3]s, subset: v1}
`, i, s.Namespace(i), s.Host(i), marker)
}

// sidecarFile is the Sidecar of a namespace by number.
const sidecarFile = `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: ns%d}
spec:
  egress:
  - hosts: ["./*"]
`

// strictFile makes mutual TLS strict everywhere.
const strictFile = `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
`

// policyFile is AuthorizationPolicy i. The first one is of the whole mesh and refuses the path
// "/"+marker; the others let workloads of one service be called by others of their namespace.
func (s Shape) policyFile(i int, marker string) string {
	if i == 0 {
		return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: mesh, namespace: istio-system}
spec:
  action: DENY
  rules:
  - to: [{operation: {paths: ["/%s"]}}]
`, marker)
	}
	svc := i % s.Services
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: policy%d, namespace: %s}
spec:
  selector: {matchLabels: {app: svc%d}}
  action: ALLOW
  rules:
  - from: [{source: {namespaces: [%s]}}, {source: {principals: ["%s/ns/%s/sa/%s"]}}]
    to: [{operation: {methods: [GET, POST], paths: ["/api/*", "/health"]}}]
`, i, s.Namespace(svc), svc, s.Namespace(svc), trustDomain, s.Namespace(0), s.Account(0))
}

// filterFile is EnvoyFilter i.
func (s Shape) filterFile(i int) string {
	const head = "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n" +
		"metadata: {name: filter%d, namespace: %s}\nspec:\n"
	svc := i % s.Services
	if i%2 == 0 {
		return fmt.Sprintf(head+`  configPatches:
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND, cluster: {service: %s}}
    patch: {operation: MERGE, value: {connect_timeout: 3s}}
`, i, "istio-system", s.Host(svc))
	}
	return fmt.Sprintf(head+`  workloadSelector: {labels: {app: svc%d}}
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_INBOUND
      listener:
        filterChain:
          filter:
            name: envoy.filters.network.http_connection_manager
            subFilter: {name: envoy.filters.http.router}
    patch:
      operation: INSERT_BEFORE
      value:
        name: envoy.filters.http.local_ratelimit
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
          stat_prefix: limit
          token_bucket: {max_tokens: 100, fill_interval: 1s}
`, i, s.Namespace(svc), svc)
}

// Write writes the mesh into dir: a file for each service, a file of routes for every tenth, the
// Sidecars, the policies and the EnvoyFilters.
func (s Shape) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, body := range s.files() {
		if err := replace(dir, name, body); err != nil {
			return err
		}
	}
	return nil
}

func (s Shape) files() map[string]string {
	out := map[string]string{}
	for i := range s.Services {
		out[serviceName(i)] = s.serviceFile(i, "")
		if i%10 == 0 {
			out[routeName(i)] = s.routeFile(i, "initial")
		}
	}
	if s.Policies > 0 {
		out["strict.yaml"] = strictFile
	}
	for i := range s.Policies {
		out[policyName(i)] = s.policyFile(i, firstPolicy)
	}
	for i := range s.Filters {
		out[fmt.Sprintf("filter%05d.yaml", i)] = s.filterFile(i)
	}
	for n := range s.Namespaces {
		if s.Scoped {
			out[fmt.Sprintf("sidecar%d.yaml", n)] = fmt.Sprintf(sidecarFile, n)
		}
	}
	return out
}

// AddEndpoint writes the file of service i anew, with one more endpoint.
func (s Shape) AddEndpoint(dir string, i int, ip string) error {
	return replace(dir, serviceName(i), s.serviceFile(i, ip))
}

// replace puts a file into place by rename, as an editor or a deployment tool would.
func replace(dir, name, body string) error {
	tmp := filepath.Join(dir, "."+name+".tmp")
	if err := os.WriteFile(tmp, []byte(body), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}
