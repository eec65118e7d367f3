package harness

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

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
	ns    *Namespace
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
	if w.Namespace == "" {
		w.Namespace = "default"
	}
	if w.IP == "" && w.Redirected == nil {
		w.IP = m.IP()
	}
	interception, gid := "none", uint32(0)
	if w.Redirected != nil {
		interception, gid, w.IP = "redirect", ProxyGID, w.Redirected.IP
	}
	state, argv := m.T.TempDir(), w.Redirected.prefix()
	if w.TProxy {
		interception, gid, state = "tproxy", 0, m.stateOf(TProxyUID)
		argv = append(argv, "setpriv", "--reuid", TProxyUser, "--regid", TProxyUser, "--clear-groups", "--inh-caps",
			"+net_raw",
			"--ambient-caps", "+net_raw")
	}
	argv = append(argv,
		filepath.Join(programs, "ashore-agent"), "run", "--dev", "--xds", m.XDS(), "--envoy", testenvoy.Path(m.T),
		"--name", w.Name, "--namespace", w.Namespace, "--address", w.IP, "--interception", interception, "--state", state)
	if w.Labels != "" {
		argv = append(argv, "--labels", w.Labels)
	}
	if w.Router {
		argv = append(argv, "--type", "router")
	}
	return &Proxy{Process: start(m.T, "proxy "+w.Name, gid, append(argv, w.Flags...)...), mesh: m, IP: w.IP,
		State: state, ns: w.Redirected}
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
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		if n, text, ok := strings.Cut(lines.Text(), ": "); ok && n == name {
			v, err := strconv.Atoi(text)
			if err != nil {
				p.mesh.T.Fatalf("statistic %s: %v", name, err)
			}
			return v
		}
	}
	return 0
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
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(p.State, "admin.sock"))
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: dial}}
	resp, err := client.Get("http://envoy" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
