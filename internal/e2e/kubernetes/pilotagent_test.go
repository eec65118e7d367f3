package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// moduleFolder returns the folder of a module that a module of this repository pins.
func moduleFolder(t *testing.T, pinned, module string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = pinned
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", module, err)
	}
	return strings.TrimSpace(string(dir))
}

// startPilotAgent runs Istio's agent with our Envoy in a Pod, as Istio's injector sets it up: with
// a token for the audience istio-ca that is bound to the Pod, the root certificate in a file, and
// environment variables. It returns its folder.
func (c *cluster) startPilotAgent(p *pod, account, root, discovery string) (*harness.Process, string) {
	c.t.Helper()
	dir := c.t.TempDir()
	namespace, name, _ := strings.Cut(p.name, "/")
	for file, text := range map[string]string{
		"var/run/secrets/tokens/istio-token":  c.Token(namespace, account, name, "istio-ca"),
		"var/run/secrets/istio/root-cert.pem": root,
		"etc/istio/pod/labels":                "app=\"" + account + "\"\n",
		"etc/istio/pod/annotations":           "",
		"var/lib/istio/data/ignored":          "",
		"etc/istio/proxy/ignored":             "",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	template := filepath.Join(moduleFolder(c.t, "../../../tools/istio", "istio.io/istio"), "tools/packaging/common/envoy_bootstrap.json")
	proxy := fmt.Sprintf("{discoveryAddress: %q, binaryPath: %s, proxyBootstrapTemplatePath: %s, terminationDrainDuration: 1s, statusPort: 15020}",
		discovery, testenvoy.Path(c.t), template)
	p.ns.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	return p.ns.Start("pilot-agent "+p.name, harness.ProxyGID, "env", "-C", dir, "PROXY_CONFIG="+proxy,
		"POD_NAME="+name, "POD_NAMESPACE="+namespace, "INSTANCE_IP="+p.ns.IP, "SERVICE_ACCOUNT="+account,
		"ISTIO_META_CLUSTER_ID=kubernetes", "ISTIO_META_INTERCEPTION_MODE=REDIRECT", "ISTIO_META_WORKLOAD_NAME="+account,
		"TRUST_DOMAIN=cluster.local",
		testchild.Tool(c.t, "PILOT_AGENT", "pilot-agent"), "proxy", "sidecar", "--proxyLogLevel=warning"), dir
}

// redirect sends what applications call to the proxy's outbound port, and what arrives to its
// inbound port. The proxy's own traffic and that to loopback addresses stay.
const redirect = `
table inet ashore {
	chain output {
		type nat hook output priority -100;
		meta skgid %d accept
		ip daddr 127.0.0.0/8 accept
		meta l4proto tcp redirect to :15001
	}
	chain prerouting {
		type nat hook prerouting priority -100;
		meta l4proto tcp redirect to :15006
	}
}
`

func TestPilotAgent(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	c.apply(workload("shop", "web", 1))
	p := c.pod("shop/web-")
	jwks := filepath.Join(t.TempDir(), "jwks.json")
	resp, err := c.Client.Get(c.URL + "/openid/v1/jwks")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f, err := os.Create(jwks)
	if err != nil {
		t.Fatal(err)
	}
	f.ReadFrom(resp.Body)
	f.Close()
	m := harness.New(t, map[string]string{"a.yaml": fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: a, namespace: shop}
spec:
  metadata: {labels: {app: a}}
  template: {serviceAccount: a}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  addresses: [240.240.9.9]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  endpoints: [{address: %s, serviceAccount: web, labels: {app: web}}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
`, p.ns.IP)}, harness.At(hub), harness.Secure("attestors: {jwt: [{issuer: https://kubernetes.default.svc.cluster.local, jwks: "+jwks+"}]}"))
	root, _, err := harness.Command("ashorectl", "ca", "show", "--pem", "--socket", m.Socket())
	if err != nil {
		t.Fatal(err)
	}
	agent, dir := c.startPilotAgent(p, "web", root, m.TLS())
	vm := hub.Attach()
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a", IP: vm.IP, Within: vm})
	_ = client
	t.Cleanup(func() {
		t.Log(agent.Log())
		b, _ := exec.Command("ip", "netns", "exec", "x").Output()
		_ = b
		_ = dir
	})
	vm.Client(t, vm.IP+":80").Want(t, "a Pod with Istio's agent", harness.Request{Host: "web.shop.svc.cluster.local"}, func(a harness.Answer) error {
		if a.Status != 200 {
			return fmt.Errorf("%d %s", a.Status, a.Body)
		}
		t.Log(a.Seen)
		return nil
	})
}
