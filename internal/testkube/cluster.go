package testkube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testcert"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// Network is where a cluster runs.
type Network interface {
	// Program returns a program that will run in the network.
	Program(argv ...string) *exec.Cmd
	// Dial connects from within the network.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// Machine is the network of this machine.
type Machine struct{ net.Dialer }

// Program implements Network.
func (*Machine) Program(argv ...string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }

// Dial implements Network.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.DialContext(ctx, network, address)
}

// Cluster is a cluster of Kubernetes. It keeps its ports when its parts are restarted.
type Cluster struct {
	// URL is that of the API server, such as "https://127.0.0.1:20123".
	URL string
	// Admin is a kubeconfig with all rights.
	Admin string
	// Client sends requests to the API server as the administrator. A request may take 20 s.
	Client *http.Client

	t       testing.TB
	network Network
	dir     string
	cert    string // certificate of the API server and of the administrator, and its CA
	key     string // key of cert, and of the tokens of ServiceAccounts
	etcd    string // URL of etcd

	stopEtcd, stopAPI, stopControllers func()
}

// controllers are those of kube-controller-manager that run.
var controllers = []string{"deployment", "replicaset", "endpointslice", "endpointslice-mirroring", "namespace",
	"serviceaccount", "root-ca-certificate-publisher", "garbage-collector"}

// waitTime is how long a part may take to start. Machines of CI are slow and shared.
const waitTime = 90 * time.Second

// Start returns a cluster that runs until t ends.
func Start(t testing.TB, network Network) *Cluster {
	t.Helper()
	c := &Cluster{URL: "https://" + testport.Address(t), t: t, network: network, dir: t.TempDir(),
		etcd: "http://" + testport.Address(t)}
	c.cert, c.key = testcert.Write(t, c.dir)
	c.Admin = c.kubeconfig("admin", fmt.Sprintf("client-certificate: %s, client-key: %s", c.cert, c.key))
	transport := &http.Transport{DialContext: network.Dial, TLSClientConfig: c.administrator(), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	c.Client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	c.startEtcd()
	c.StartAPI()
	c.startControllers()
	return c
}

// administrator returns how the administrator connects.
func (c *Cluster) administrator() *tls.Config {
	c.t.Helper()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}
}

// StopAPI kills the API server. Its data stays, but not the history of its objects: after StartAPI, a
// watch cannot continue at a version from before later changes (410 Gone).
func (c *Cluster) StopAPI() { c.stopAPI() }

// StartAPI starts the API server, and returns when it is ready.
func (c *Cluster) StartAPI() {
	c.t.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(c.URL, "https://"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.stopAPI = c.run("kube-apiserver", "--bind-address", host, "--advertise-address", host, "--secure-port", port,
		"--etcd-servers", c.etcd, "--etcd-compaction-interval", "0", "--cert-dir", c.dir,
		"--tls-cert-file", c.cert, "--tls-private-key-file", c.key, "--client-ca-file", c.cert,
		"--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", c.cert, "--service-account-signing-key-file", c.key,
		"--service-cluster-ip-range", "10.96.0.0/16,fd96::/112",
		// Services of webhooks are resolved to their endpoints: there is no kube-proxy.
		"--endpoint-reconciler-type", "none", "--enable-aggregator-routing",
		"--enable-priority-and-fairness=false", "--profiling=false")
	c.eventually("the API server is ready", func() error { return c.Call(http.MethodGet, "/readyz", nil, nil) })
}

// RestartControllers makes the controllers work at once after a long outage of the API server. Their
// next attempt may be a minute away.
func (c *Cluster) RestartControllers() {
	c.t.Helper()
	c.stopControllers()
	c.startControllers()
}

// Forget makes the cluster lose all its data, as after the loss of the disk. It returns when the
// cluster is ready and empty.
func (c *Cluster) Forget() {
	c.t.Helper()
	c.stopControllers()
	c.stopAPI()
	c.stopEtcd()
	if err := os.RemoveAll(c.file("etcd")); err != nil {
		c.t.Fatal(err)
	}
	c.startEtcd()
	c.StartAPI()
	c.startControllers()
}

// startEtcd starts etcd, and does not wait: the API server does.
func (c *Cluster) startEtcd() {
	c.t.Helper()
	c.stopEtcd = c.run("etcd", "--data-dir", c.file("etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd, "--listen-peer-urls", "http://127.0.0.1:0")
}

// startControllers starts the controllers, and returns when they work.
func (c *Cluster) startControllers() {
	c.t.Helper()
	c.stopControllers = c.run("kube-controller-manager", "--kubeconfig", c.Admin, "--secure-port", "0", "--leader-elect=false",
		"--controllers", strings.Join(controllers, "-controller,")+"-controller", "--root-ca-file", c.cert,
		"--service-account-private-key-file", c.key)
	c.eventually("the controllers work", func() error {
		return c.Call(http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil, nil)
	})
}

// run starts a program of Kubernetes, which runs until stop is called or the test ends.
func (c *Cluster) run(program string, flags ...string) (stop func()) {
	c.t.Helper()
	path := filepath.Join(testchild.Tool(c.t, "KUBERNETES", "kubernetes"), program)
	return testchild.Run(c.t, c.network.Program(append([]string{path}, flags...)...))
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

// eventually waits until f returns nil.
func (c *Cluster) eventually(what string, f func() error) {
	c.t.Helper()
	for end := time.Now().Add(waitTime); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s: not within %v: %v", what, waitTime, err)
		}
	}
}
