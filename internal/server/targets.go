package server

import (
	"cmp"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/xds"
)

const (
	// agentStatusPort serves the metrics of an agent, its Envoy and its application.
	agentStatusPort = "15020"
	// maxTokenFile limits the file of the token, in bytes.
	maxTokenFile = 4 << 10
	// keepDisconnected is how long an agent stays a target after it was last listed as connected.
	keepDisconnected = 15 * time.Minute
	// maxDisconnected is how many disconnected agents stay targets. The last seen ones stay.
	maxDisconnected = 10_000
)

// targetGroup is a target with its labels. Source: prometheus.io, "Writing HTTP service discovery".
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// agentTarget is an agent as a target.
type agentTarget struct {
	targetGroup
	connected time.Time // when it was last listed as connected
}

// discovery lists what Prometheus can scrape: this replica, and the agents that are connected to it or
// were within keepDisconnected.
type discovery struct {
	tokenFile string // empty: the list is not served
	cluster   string // cluster ID of the mesh
	proxies   func() []xds.ProxyStatus
	log       hclog.Logger

	mu     sync.Mutex
	recent []agentTarget // guarded by mu; the last answer, the last seen agents first
}

// ServeHTTP implements http.Handler.
func (d *discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.tokenFile == "" {
		http.Error(w, "the targets are not served: set metrics.targetsTokenFile", http.StatusNotFound)
		return
	}
	data, _, err := readfile.Read(d.tokenFile, maxTokenFile)
	token := strings.TrimSpace(string(data))
	if err != nil || token == "" {
		d.log.Error("the targets for Prometheus are not served: the file of metrics.targetsTokenFile has no token",
			"file", d.tokenFile, "error", err)
		http.Error(w, "the token cannot be read: see the log of ashored", http.StatusInternalServerError)
		return
	}
	given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
		http.Error(w, "want the token of metrics.targetsTokenFile as the bearer token", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(d.targets(r.Host)); err != nil {
		d.log.Debug("answer not read", "error", err)
	}
}

// targets lists this replica at the address that Prometheus used, and the agents.
func (d *discovery) targets(self string) []targetGroup {
	out := []targetGroup{{Targets: []string{self}, Labels: map[string]string{
		"__meta_ashore_kind": "ashored", "__meta_ashore_cluster": d.cluster}}}
	for _, a := range d.agents(time.Now()) {
		out = append(out, a.targetGroup)
	}
	return out
}

// agents are the connected agents, and those that were connected recently: alerts need the targets
// of agents that do not answer. A connected agent replaces an earlier one at its address.
func (d *discovery) agents(now time.Time) []agentTarget {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []agentTarget
	connected := map[string]bool{}
	for _, g := range agentGroups(d.cluster, d.proxies()) {
		list = append(list, agentTarget{targetGroup: g, connected: now})
		connected[g.Targets[0]] = true
	}
	limit := len(list) + maxDisconnected
	for _, a := range d.recent {
		if !connected[a.Targets[0]] && now.Sub(a.connected) < keepDisconnected {
			list = append(list, a)
		}
	}
	d.recent = list[:min(len(list), limit)]
	return d.recent
}

// agentGroups are the targets of the agents of proxies. The two Envoys of a hot restart have one agent.
func agentGroups(cluster string, proxies []xds.ProxyStatus) []targetGroup {
	var out []targetGroup
	proxies = slices.CompactFunc(proxies, func(a, b xds.ProxyStatus) bool { return a.ID == b.ID })
	for _, p := range proxies {
		n := p.Node
		if p.Agent == "" {
			continue
		}
		name := strings.TrimSuffix(n.ID, "."+n.Namespace)
		address := net.JoinHostPort(n.IPs.Items()[0].String(), agentStatusPort)
		out = append(out, targetGroup{Targets: []string{address}, Labels: map[string]string{
			"__meta_ashore_kind":            "agent",
			"__meta_ashore_cluster":         cluster,
			"__meta_ashore_proxy":           n.ID,
			"__meta_ashore_namespace":       n.Namespace,
			"__meta_ashore_workload":        cmp.Or(p.Group, name),
			"__meta_ashore_group":           p.Group,
			"__meta_ashore_service_account": n.ServiceAccount,
			"__meta_ashore_locality":        n.Locality.String(),
			"__meta_ashore_network":         n.Network,
		}})
	}
	return out
}
