package identity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// secondPort is another port of the service in these tests.
const secondPort = 8082

// twoPorts is a service web.test with two ports, and a Sidecar with that ingress.
func twoPorts(ingress string) string {
	return group("web") + fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: %d, name: http, protocol: HTTP}
  - {number: %d, name: http-second, protocol: HTTP}
  workloadSelector: {labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  egress: [{hosts: ["~/*"]}]
  ingress: [%s]
`, httpPort, secondPort, ingress)
}

// A workload without interception is called in plaintext, and by mutual TLS at the ports of a
// Sidecar's ingress listeners. Operator and workload see the problem, with what to do; a rule that
// demands mutual TLS gets none.
func TestPlaintextWithoutInboundListener(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": twoPorts(""), "a.yaml": group("a")}, harness.Secure(""))
	ip := m.IP()
	harness.NewBackend(t, "plain", fmt.Sprintf("%s:%d", ip, httpPort))
	web := m.Join(harness.Workload{Name: "web-1", Group: "shop/web", IP: ip})
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"})
	plain, second := client.Client(httpPort).Fresh(), client.Client(secondPort).Fresh()
	plain.Want(t, "the application itself", call(), unproven("plain"))
	m.WantProblem(fmt.Sprintf("the workload %s takes its connections itself at port %d,", ip, httpPort), "plaintext",
		"ingress listener", "ISTIO_MUTUAL")
	web.WantLine("interception", "warn ", fmt.Sprintf("to port %d reach", httpPort))

	harness.NewBackend(t, "behind", fmt.Sprintf("%s:%d", ip, httpAppPort))
	m.Write("web.yaml", twoPorts(fmt.Sprintf(`{port: {number: %d, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:%d"}`, secondPort, httpAppPort)))
	second.Want(t, "the application behind its proxy", call(), proven("behind"))
	plain.Want(t, "the other port", call(), unproven("plain"))
	m.WantProblem(fmt.Sprintf("the workload %s takes its connections itself at port %d,", ip, httpPort))
	web.WantLine("interception", "warn ", fmt.Sprintf("port %d reach", httpPort))

	m.Write("mode.yaml", mode("STRICT"))
	m.WantProblem(fmt.Sprintf("the workload %s takes its connections itself at port %d,", ip, httpPort), "STRICT",
		"are not enforced")
	second.Want(t, "STRICT behind the proxy", call(), proven("behind"))
	m.Write("rule.yaml", `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web.test, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
`)
	plain.Want(t, "a rule that demands mutual TLS", call(), harness.Status(http.StatusServiceUnavailable))
	second.Want(t, "a rule that demands mutual TLS, behind the proxy", call(), proven("behind"))
}

// certificateHeader is the header by which the server's proxy passes the caller's certificate to
// the application.
const certificateHeader = "X-Forwarded-Client-Cert"

// proven checks that a backend answered whose proxy saw the client's certificate.
func proven(backend string) func(harness.Answer) error {
	return func(a harness.Answer) error {
		if err := harness.From(backend)(a); err != nil {
			return err
		}
		if got := a.Seen.Header.Get(certificateHeader); !strings.Contains(got, "/ns/shop/sa/a") {
			return fmt.Errorf("the caller's certificate is %q", got)
		}
		return nil
	}
}

// unproven checks that a backend received no certificate of the caller.
func unproven(backend string) func(harness.Answer) error {
	return func(a harness.Answer) error {
		if err := harness.From(backend)(a); err != nil {
			return err
		}
		if got := a.Seen.Header.Get(certificateHeader); got != "" {
			return fmt.Errorf("the caller's certificate is %q", got)
		}
		return nil
	}
}
