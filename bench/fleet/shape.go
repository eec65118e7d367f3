package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Shape is the size of a generated mesh.
type Shape struct {
	// Services and Endpoints: how many services, and how many endpoints each has.
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	// Namespaces are what the services are spread over.
	Namespaces int `json:"namespaces"`
	// Scoped adds a Sidecar to each namespace that imports only its own.
	Scoped bool `json:"scoped"`
}

func (s Shape) namespace(i int) string { return fmt.Sprintf("ns%d", i%s.Namespaces) }

func (s Shape) host(i int) string {
	return fmt.Sprintf("svc%d.%s.svc.cluster.local", i, s.namespace(i))
}

// endpointIP is the address of endpoint e of service i; simulated proxies take these addresses.
func (s Shape) endpointIP(i, e int) string {
	n := i*s.Endpoints + e
	return fmt.Sprintf("10.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff)
}

func servicePath(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("svc%05d.yaml", i))
}
func routePath(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("route%05d.yaml", i))
}

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
`, i, s.namespace(i), s.host(i), i>>16&0xff, i>>8&0xff, i&0xff)
	for e := range s.Endpoints {
		fmt.Fprintf(&b, "  - {address: %s, labels: {app: svc%d, version: v%d}, serviceAccount: sa%d}\n", s.endpointIP(i, e), i, e%2+1, i)
	}
	if extra != "" {
		fmt.Fprintf(&b, "  - {address: %s, labels: {app: svc%d, version: v1}, serviceAccount: sa%d}\n", extra, i, i)
	}
	return b.String()
}

// routeFile is the DestinationRule and VirtualService of service i; marker is a header that the route sets.
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
`, i, s.namespace(i), s.host(i), marker)
}

func (s Shape) sidecarFile(n int) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default, namespace: ns%d}\nspec:\n  egress:\n  - hosts: [\"./*\"]\n", n)
}

// Write writes the mesh into dir: a file for each service, a file of routes for every tenth, and the Sidecars.
func (s Shape) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range s.Services {
		if err := replace(servicePath(dir, i), s.serviceFile(i, "")); err != nil {
			return err
		}
		if i%10 != 0 {
			continue
		}
		if err := replace(routePath(dir, i), s.routeFile(i, "initial")); err != nil {
			return err
		}
	}
	if !s.Scoped {
		return nil
	}
	for n := range s.Namespaces {
		if err := replace(filepath.Join(dir, fmt.Sprintf("sidecar%d.yaml", n)), s.sidecarFile(n)); err != nil {
			return err
		}
	}
	return nil
}

// replace puts a file into place by rename, as an editor or a deployment tool would.
func replace(path, body string) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, []byte(body), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
