package kubernetes

import (
	"fmt"
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

// certificateHeader is the header by which a server's proxy passes the caller's certificate on.
const certificateHeader = "X-Forwarded-Client-Cert"

// startPilotAgent runs Istio's agent with our Envoy in a Pod, as Istio's injector sets it up: with
// a token for the audience istio-ca that is bound to the Pod, the root certificate in a file, and
// environment variables.
func (c *cluster) startPilotAgent(p *pod, account, root, discovery string) *harness.Process {
	c.t.Helper()
	dir := c.t.TempDir()
	namespace, name, _ := strings.Cut(p.name, "/")
	for file, text := range map[string]string{
		"var/run/secrets/tokens/istio-token":  c.podToken(p, account, "istio-ca"),
		"var/run/secrets/istio/root-cert.pem": root,
		"etc/istio/pod/labels":                "app=\"" + account + "\"\n",
		"etc/istio/pod/annotations":           "",
		"var/lib/istio/data/ignored":          "",
		"etc/istio/proxy/ignored":             "",
	} {
		c.write(filepath.Join(dir, file), text)
	}
	template := filepath.Join(moduleFolder(c.t, "../../../tools/istio", "istio.io/istio"), "tools/packaging/common/envoy_bootstrap.json")
	proxy := fmt.Sprintf("{discoveryAddress: %q, binaryPath: %s, proxyBootstrapTemplatePath: %s, terminationDrainDuration: 1s, statusPort: 15020}",
		discovery, testenvoy.Path(c.t), template)
	p.ns.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	return p.ns.Start("pilot-agent "+p.name, harness.ProxyGID, "env", "-C", dir, "PROXY_CONFIG="+proxy,
		"POD_NAME="+name, "POD_NAMESPACE="+namespace, "INSTANCE_IP="+p.ns.IP, "SERVICE_ACCOUNT="+account,
		"ISTIO_META_CLUSTER_ID=kubernetes", "ISTIO_META_INTERCEPTION_MODE=REDIRECT", "ISTIO_META_WORKLOAD_NAME="+account,
		"TRUST_DOMAIN=cluster.local",
		testchild.Tool(c.t, "PILOT_AGENT", "pilot-agent"), "proxy", "sidecar", "--proxyLogLevel=warning")
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
