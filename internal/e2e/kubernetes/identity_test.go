package kubernetes

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// rootConfigMap is the ConfigMap with the root certificates of the mesh, and rootKey its key.
const rootConfigMap, rootKey = "istio-ca-root-cert", "root-cert.pem"

// strict makes all workloads of namespace shop require mutual TLS.
const strict = `---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
`

// secured is workload whose Pods have a proxy.
func secured(namespace, name string) string {
	return strings.Replace(workload(namespace, name, 1), "metadata: {labels: {app: "+name+"}}",
		"metadata: {labels: {app: "+name+", security.istio.io/tlsMode: istio}}", 1)
}

// root waits for the root certificates in a namespace, and returns them.
func (c *cluster) root(namespace string) (text string) {
	c.t.Helper()
	harness.Eventually(c.t, "the root certificate in "+namespace, func() error {
		o, err := c.client.CoreV1().ConfigMaps(namespace).Get(context.Background(), rootConfigMap, metav1.GetOptions{})
		if err == nil {
			text = o.Data[rootKey]
		}
		if err == nil && !strings.Contains(text, "BEGIN CERTIFICATE") {
			err = fmt.Errorf("it has %v", o.Data)
		}
		return err
	})
	return text
}

// startAgent runs our agent with Envoy in a Pod, with a token that is bound to the Pod, and more flags.
func (c *cluster) startAgent(p *pod, account, root, address string, flags ...string) *harness.Process {
	c.t.Helper()
	p.ns.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	argv := append(c.joinLine(p, account, c.podToken(p, account, "istio-ca"), root, address), flags...)
	return p.ns.Start("agent "+p.name, harness.ProxyGID, argv...)
}

// podToken returns a token of a service account that is bound to a Pod.
func (c *cluster) podToken(p *pod, account, audience string) string {
	c.t.Helper()
	namespace, name, _ := strings.Cut(p.name, "/")
	return c.Token(namespace, account, name, audience)
}

// joinLine returns the command by which our agent joins in a Pod with a token.
func (c *cluster) joinLine(p *pod, account, token, root, address string) []string {
	c.t.Helper()
	namespace, name, _ := strings.Cut(p.name, "/")
	dir := c.t.TempDir()
	c.write(filepath.Join(dir, "token"), token)
	c.write(filepath.Join(dir, "root.pem"), root)
	return []string{harness.Program("ashore-agent"), "join", "--control-plane", address,
		"--service-account-token", filepath.Join(dir, "token"), "--ca-file", filepath.Join(dir, "root.pem"),
		"--namespace", namespace, "--name", name, "--address", p.ns.IP, "--state", filepath.Join(dir, "state"), "--labels", "app=" + account,
		"--interception", "redirect", "--envoy", testenvoy.Path(c.t), "--set", "drain.maximum=1s"}
}

// provenBy checks that a Pod or VM answered whose proxy saw the certificate of a service account.
func provenBy(account, prefix string) func(harness.Answer) error {
	return func(a harness.Answer) error {
		if err := answeredBy(prefix)(a); err != nil {
			return err
		}
		if got := a.Seen.Header.Get(certificateHeader); !strings.Contains(got, "/ns/shop/sa/"+account) {
			return fmt.Errorf("the caller's certificate is %q, want %s", got, account)
		}
		return nil
	}
}

// Pods join with the tokens of their service accounts, with Istio's agent and with ours. They and the
// VMs call one another with mutual TLS.
func TestIdentity(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	c.apply(secured("shop", "web") + "---" + secured("shop", "api"))
	m := harness.New(t, map[string]string{"vm.yaml": group("vm") + strict + `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: vm, namespace: shop}
spec:
  hosts: [vm.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  workloadSelector: {labels: {app: vm}}
`}, harness.At(hub), harness.Secure("attestors: {kubernetes: [kubernetes]}"),
		harness.Sources(source("kubernetes", c.Admin)))
	root := c.root("shop")
	web, api := c.pod("shop/web-"), c.pod("shop/api-")
	c.startPilotAgent(web, "web", root, m.TLS())
	c.startAgent(api, "api", root, m.TLS())
	machine := join(t, m, hub, "vm")
	machine.Namespace.Backend(t, "vm-1", "0.0.0.0:8080")

	hosts := map[string]string{"web": c.clusterIP("shop", "web"), "api": c.clusterIP("shop", "api"), "vm": ""}
	for _, caller := range []struct {
		account string
		ns      *harness.Namespace
	}{{"vm", machine.Namespace}, {"web", web.ns}, {"api", api.ns}} {
		for name, ip := range hosts {
			if name == caller.account {
				continue // the rules of this test redirect no calls to the machine itself
			}
			host := name + ".shop.svc.cluster.local"
			if name == "vm" {
				host, ip = "vm.test", hosts["web"] // HTTP finds the service by its host
			}
			caller.ns.Client(t, ip+":80").Fresh().Want(t, caller.account+" calls "+name, harness.Request{Host: host},
				provenBy(caller.account, name+"-"))
		}
	}
}
