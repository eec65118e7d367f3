package outages

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
)

// Where services listen for their callers, where the proxies of their workloads do, and the
// applications behind those.
const servicePort, proxyPort, appPort = 8000, 8080, 18080

// group is a WorkloadGroup whose members have the identity and the label app of its name. A proxy
// of the group may call every service.
func group(name string) string {
	return strings.ReplaceAll(fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: NAME, namespace: shop}
spec: {metadata: {labels: {app: NAME}}, template: {serviceAccount: NAME}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: NAME, namespace: shop}
spec:
  workloadSelector: {labels: {app: NAME}}
  ingress: [{port: {number: %d, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:%d"}]
  egress: [{hosts: ["*/*"]}]
`, proxyPort, appPort), "NAME", name)
}

// service is a ServiceEntry of a host of those who joined a group.
func service(name, host, group string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, targetPort: %d, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: %s}}
`, name, host, servicePort, proxyPort, group)
}

// outside is a ServiceEntry of a host that is no member of the mesh, at appPort of an address.
func outside(name, host, address string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: %d, targetPort: %d, name: http, protocol: HTTP}]
  endpoints: [{address: %s}]
`, name, host, servicePort, appPort, address)
}

// routed is a VirtualService by which requests to a host that name another one in the header "to"
// go there.
func routed(name, host string, others ...string) string {
	text := fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  http:
`, name, host)
	for _, to := range others {
		text += fmt.Sprintf("  - {match: [{headers: {to: {exact: %s}}}], route: [{destination: {host: %s}}]}\n", to, to)
	}
	return text + fmt.Sprintf("  - {route: [{destination: {host: %s}}]}\n", host)
}

// strict has workloads want callers to prove who they are.
const strict = `---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
`

// put has a server of MCP hold the objects of a text, each under the name that its protocol has for
// its kind.
func put(t *testing.T, store *mcptest.Store, typ func(config.Kind) string, text string) {
	t.Helper()
	result := config.Parse("text.yaml", []byte(text))
	for _, p := range result.Problems {
		t.Fatal(p)
	}
	for _, o := range result.Objects {
		store.Put(typ(o.Kind), o.Namespace+"/"+o.Name, proto.CloneOf(o.Spec))
	}
}

// xdsType is what MCP over xDS calls a kind.
func xdsType(k config.Kind) string { return "networking.istio.io/v1/" + string(k) }
