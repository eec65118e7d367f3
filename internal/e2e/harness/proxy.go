package harness

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// Workload describes the workload of a proxy.
type Workload struct {
	// Name and Namespace; the namespace is "default" when empty.
	Name, Namespace string
	// IP is the workload's own loopback address; a new one when empty.
	IP string
	// Labels are "app=web,version=v1".
	Labels string
	// Router makes it a gateway.
	Router bool
	// Redirected runs it in a network namespace whose traffic is redirected to its two ports; the
	// proxy's own has group ID ProxyGID.
	Redirected *Namespace
	// TProxy says that the rules are those of package agent/intercept: the proxy runs as the user
	// and group TProxyUser.
	TProxy bool
	// Within runs a workload that joins in a network namespace, at IP.
	Within *Namespace
	// Group is the WorkloadGroup, "shop/web", of a workload that joins.
	Group string
	// Flags are further flags of ashore-agent run, or join.
	Flags []string
}

// ProxyGID is the group of proxies in network namespaces: their traffic is not redirected.
const ProxyGID = 1337

// TProxyUser is the user and the group of such proxies. Its number is TProxyUID on every Linux.
const (
	TProxyUser = "daemon"
	TProxyUID  = 1
)

// Proxy is the stock Envoy of a workload, run by ashore-agent.
type Proxy struct {
	*Process
	mesh *Mesh
	// IP is the workload's address.
	IP string
	// State is the agent's state folder.
	State string
}

// Proxy starts one and waits until it is ready: it has listeners and clusters.
func (m *Mesh) Proxy(w Workload) *Proxy {
	m.T.Helper()
	p := m.StartProxy(w)
	p.Ready()
	return p
}

// Ready waits until Envoy serves.
func (p *Proxy) Ready() {
	p.mesh.T.Helper()
	Eventually(p.mesh.T, p.name+" is ready", func() error {
		if !p.Running() {
			return fmt.Errorf("it has ended:\n%s", p.Log())
		}
		body, err := p.admin("/ready")
		if err != nil {
			return err
		}
		if strings.TrimSpace(body) != "LIVE" {
			return fmt.Errorf("it is %s", strings.TrimSpace(body))
		}
		return nil
	})
}

// StartProxy starts one and does not wait.
func (m *Mesh) StartProxy(w Workload) *Proxy {
	m.T.Helper()
	p := m.prepare(w)
	interception, gid, argv := "none", uint32(0), w.Redirected.prefix()
	switch {
	case w.TProxy:
		interception = "tproxy"
		argv = append(argv, "setpriv", "--reuid", TProxyUser, "--regid", TProxyUser, "--clear-groups", "--inh-caps",
			"+net_raw", "--ambient-caps", "+net_raw")
	case w.Redirected != nil:
		interception, gid = "redirect", ProxyGID
	}
	argv = append(argv, Program("ashore-agent"), "run", "--dev", "--xds", m.XDS(), "--namespace",
		cmp.Or(w.Namespace, "default"), "--interception", interception)
	p.Process = start(m.T, "proxy "+w.Name, gid, append(argv, p.flags(w)...)...)
	return p
}

// prepare gives a workload its address and state folder.
func (m *Mesh) prepare(w Workload) *Proxy {
	m.T.Helper()
	p := &Proxy{mesh: m, IP: w.IP, State: m.T.TempDir()}
	switch {
	case w.Redirected != nil:
		p.IP = w.Redirected.IP
	case w.IP == "":
		p.IP = m.IP()
	}
	if w.TProxy {
		p.State = m.stateOf(TProxyUID)
	}
	return p
}

// flags describe a workload on a machine with several.
func (p *Proxy) flags(w Workload) []string {
	flags := []string{"--name", w.Name, "--address", p.IP, "--state", p.State, "--envoy", testenvoy.Path(p.mesh.T)}
	if w.Labels != "" {
		flags = append(flags, "--labels", w.Labels)
	}
	if w.Router {
		flags = append(flags, "--type", "router")
	}
	return append(flags, w.Flags...)
}

// stateOf makes a state folder for another user.
func (m *Mesh) stateOf(uid int) string {
	m.T.Helper()
	dir, err := os.MkdirTemp("", "ashore-state-") // those of a test are for its user alone
	if err == nil {
		err = os.Chown(dir, uid, uid)
	}
	if err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			m.T.Error(err)
		}
	})
	return dir
}

// Client calls the proxy's listener at port.
func (p *Proxy) Client(port int) *Client {
	return NewClient(p.mesh.T, p.IP+":"+strconv.Itoa(port))
}

// Stat is one of Envoy's own statistics; zero when it has none of that name.
func (p *Proxy) Stat(name string) int {
	p.mesh.T.Helper()
	body, err := p.admin("/stats?filter=" + url.QueryEscape("^"+regexp.QuoteMeta(name)+"$"))
	if err != nil {
		p.mesh.T.Fatalf("statistics of Envoy: %v", err)
	}
	_, text, found := strings.Cut(strings.TrimSpace(body), ": ")
	if !found {
		return 0
	}
	v, err := strconv.Atoi(text)
	if err != nil {
		p.mesh.T.Fatalf("statistic %s: %v", name, err)
	}
	return v
}

// StatSum adds up Envoy's own statistics whose names match a regular expression.
func (p *Proxy) StatSum(pattern string) (sum int, err error) {
	body, err := p.admin("/stats?filter=" + url.QueryEscape(pattern))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(body) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("statistic %q: %w", line, err)
		}
		sum += n
	}
	return sum, nil
}

// ConfigDump is Envoy's own view of its configuration, JSON.
func (p *Proxy) ConfigDump() string {
	p.mesh.T.Helper()
	body, err := p.admin("/config_dump?include_eds")
	if err != nil {
		p.mesh.T.Fatalf("configuration of Envoy: %v", err)
	}
	return body
}

// admin asks Envoy's admin interface.
func (p *Proxy) admin(path string) (string, error) {
	client := envoy.UnixClient(filepath.Join(p.State, "admin.sock"), 5*time.Second)
	resp, err := client.Get("http://envoy" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
