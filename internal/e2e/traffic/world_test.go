package traffic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// port is where services listen in these tests, and so do the proxies for them.
const port = 8080

// service is a ServiceEntry of that host with an endpoint for each "version=address".
func service(host string, endpoints ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http}]
  endpoints:
`, strings.ReplaceAll(host, ".", "-"), host, port)
	for _, e := range endpoints {
		version, address, _ := strings.Cut(e, "=")
		fmt.Fprintf(&b, "  - {address: %s, labels: {version: %s}}\n", address, version)
	}
	if len(endpoints) == 0 {
		b.WriteString("  []\n")
	}
	return b.String()
}

// subsets is a DestinationRule with subsets v1 and v2; policy, which may be empty, is indented YAML
// of its trafficPolicy.
func subsets(host, policy string) string {
	text := fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %s}
spec:
  host: %s
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
`, strings.ReplaceAll(host, ".", "-"), host)
	if policy != "" {
		text += "  trafficPolicy: " + policy + "\n"
	}
	return text
}

// routes is a VirtualService of that host; http is the YAML of its http routes, HOST in it stands
// for the host.
func routes(host, http string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s}
spec:
  hosts: [%s]
  http:
%s
`, strings.ReplaceAll(host, ".", "-"), host, strings.ReplaceAll(strings.Trim(http, "\n"), "HOST", host))
}

// backends starts two HTTP backends, v1 and v2, on addresses of their own.
func backends(t *testing.T, m *harness.Mesh) (v1, v2 *harness.Backend) {
	return backend(t, m, "v1"), backend(t, m, "v2")
}

func backend(t *testing.T, m *harness.Mesh, name string) *harness.Backend {
	return harness.NewBackend(t, name, fmt.Sprintf("%s:%d", m.IP(), port))
}

// at is "version=address" of a backend.
func at(b *harness.Backend) string {
	ip, _, _ := strings.Cut(b.Address, ":")
	return b.Name + "=" + ip
}
