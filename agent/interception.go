package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/agent/intercept"
)

// The listeners that redirected connections arrive at, as the control plane names them.
const (
	listenerInbound  = "virtualInbound"
	listenerOutbound = "virtualOutbound"
)

// redirectSoon is how long after Envoy's start nothing need have been redirected yet.
const redirectSoon = time.Minute

// redirection is what has been redirected to an Envoy since it started.
type redirection struct {
	// inPort and outPort are where connections are redirected to; zero: Envoy has no such listener.
	inPort, outPort int
	// in and out are how many came.
	in, out uint64
	// serves says that the workload has services of the mesh.
	serves bool
	// for how long Envoy has run.
	since time.Duration
}

// redirected asks Envoy. Which connections were for other listeners than one knows only from those: outgoing ones are counted where
// they are taken over.
func (a *admin) redirected(ctx context.Context) (redirection, error) {
	var r redirection
	info, err := a.serverInfo(ctx)
	if err != nil {
		return r, err
	}
	if r.since, err = time.ParseDuration(info.Uptime); err != nil {
		return r, fmt.Errorf("read for how long Envoy has run: %w", err)
	}
	if r.inPort, r.outPort, err = a.redirectPorts(ctx); err != nil {
		return r, err
	}
	stats, err := a.stats(ctx, `^(listener\..*\.downstream_cx_total|cluster\.inbound\|.*\.membership_total)$`)
	if err != nil {
		return r, err
	}
	for name, n := range stats {
		switch {
		case strings.HasPrefix(name, "cluster."):
			r.serves = true
		case !mainCount.MatchString(name):
		case strings.HasSuffix(name, "_"+strconv.Itoa(r.inPort)+cxTotal):
			r.in += n
		default:
			r.out += n
		}
	}
	return r, nil
}

// cxTotal ends the names of counts of connections.
const cxTotal = ".downstream_cx_total"

// mainCount matches the count of a listener at an address, without those of its workers and of listeners with names of their own:
// for health, metrics and the admin interface.
var mainCount = regexp.MustCompile(`^listener\.[0-9a-fA-F_.:\[\]]+_[0-9]+\.downstream_cx_total$`)

// redirectPorts are where Envoy takes redirected connections.
func (a *admin) redirectPorts(ctx context.Context) (in, out int, err error) {
	all, err := a.listeners(ctx)
	for _, l := range all {
		switch l.Name {
		case listenerInbound:
			in = l.Address.Socket.Port
		case listenerOutbound:
			out = l.Address.Socket.Port
		}
	}
	return in, out, err
}

// envoyListener is a listener that Envoy has opened.
type envoyListener struct {
	Name    string `json:"name"`
	Address struct {
		Socket struct {
			Address string `json:"address"`
			Port    int    `json:"port_value"`
		} `json:"socket_address"`
	} `json:"local_address"`
}

func (a *admin) listeners(ctx context.Context) ([]envoyListener, error) {
	body, err := a.do(ctx, http.MethodGet, "/listeners?format=json")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Listeners []envoyListener `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read Envoy's listeners: %w", err)
	}
	return doc.Listeners, nil
}

// listens says where Envoy listens.
func (a *Agent) listens(ctx context.Context) (map[string]bool, error) {
	all, err := a.admin.listeners(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, l := range all {
		out[net.JoinHostPort(l.Address.Socket.Address, strconv.Itoa(l.Address.Socket.Port))] = true
	}
	return out, nil
}

// InterceptConfig is what the rules of a workload depend on whose interception is "tproxy", and how to check that its
// machine works with them. The settings are complete.
func InterceptConfig(s *Settings) (intercept.Config, intercept.Checks, error) {
	if s.Workload.Interception != "tproxy" {
		return intercept.Config{}, intercept.Checks{}, &UsageError{"workload.interception",
			fmt.Sprintf("it is %s; set it to tproxy for rules of Ashore", s.Workload.Interception)}
	}
	c := intercept.Config{Settings: s.Interception}
	for _, o := range s.Ports.openPorts() {
		c.OwnPorts = append(c.OwnPorts, o.port)
	}
	if s.capturesDNS() {
		c.DNSPort = s.Ports.DNS
	}
	return c, intercept.Checks{
		ControlPlane: s.XDS.Addresses,
		Plaintext:    s.Dev,
		Ready:        "http://" + s.at(s.Ports.Status) + "/healthz/ready",
	}, nil
}

// sayInterception tells whether the rules that redirect connections do anything, of a workload that
// lives by such. They are not the agent's, and without them the workload works, in plaintext and
// without policies. Of another workload it tells the ports at which its callers do not meet Envoy,
// if there are any.
func (a *Agent) sayInterception(ctx context.Context, r *Report) {
	if a.settings.Workload.Interception == "none" {
		if a.link == nil {
			return
		}
		if ports := a.link.LinkState().Bypassed; ports != "" {
			const todo = "let the application listen on 127.0.0.1 alone, where Envoy then listens for it, or intercept the traffic"
			r.say("interception", stateWarn, todo,
				"connections to %s reach the application past Envoy: no mutual TLS and no policies there",
				portsWord(ports))
		}
		return
	}
	n, err := a.admin.redirected(ctx)
	if err != nil {
		r.say("interception", stateWarn, "", "not known: Envoy does not answer") // its own line says what to do
		return
	}
	state, todo, text := n.judge(a.settings.Workload.Interception)
	r.say("interception", state, todo, "%s", text)
}

// judge says what to make of it.
func (n *redirection) judge(mode string) (state, todo, text string) {
	check := "check the rules that are to redirect connections to Envoy (\"nft list ruleset\"): this agent sets none; or set workload.interception to none"
	if mode == "tproxy" {
		check = "run \"ashore-agent intercept status\" as root; \"ashore-agent intercept install\" installs the rules"
	}
	since := "since Envoy started " + span(n.since) + " ago"
	switch {
	case n.inPort == 0 || n.outPort == 0:
		return stateWarn, "", "Envoy takes no redirected connections yet"
	case n.since >= redirectSoon && n.in == 0 && (n.serves || n.out == 0): // who serves nothing may have nobody who calls
		return stateWarn, check, fmt.Sprintf("no connection has been redirected to %d %s: callers may reach the application past Envoy, in plaintext and whatever the policies say (%d went out by way of %d)",
			n.inPort, since, n.out, n.outPort)
	}
	return stateOK, "", fmt.Sprintf("%d connections came in by way of %d, %d went out by way of %d, %s", n.in, n.inPort, n.out, n.outPort, since)
}

// portsWord is "port 80" or "ports 80, 81".
func portsWord(ports string) string {
	if strings.Contains(ports, ",") {
		return "ports " + ports
	}
	return "port " + ports
}
