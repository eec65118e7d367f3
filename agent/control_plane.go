package agent

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/agent/dns"
	"github.com/ashore-mesh/ashore/agent/probe"
	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/internal/build"
)

// connect makes the relay between Envoy and the control planes. Its connections use the workload's
// certificate, or plaintext with Dev.
func (a *Agent) connect(log hclog.Logger) error {
	s := &a.settings
	n, err := node(s, streamControl)
	if err != nil {
		return err
	}
	// Not in Envoy's bootstrap: an upgrade of the agent must not replace Envoy.
	n.Metadata.Fields["ASHORE_VERSION"] = structpb.NewStringValue(build.Read().Version)
	c := relay.Config{
		Node:      n,
		Addresses: s.XDS.Addresses,
		Dial:      dialPlaintext,
		Plaintext: s.Dev,
		SetRoots:  func([]string) error { return nil },
		SetConfig: a.setConfig,
		CacheFile: filepath.Join(s.State, cacheFile),
		Owner:     fmt.Sprintf("%s, %s, group %s", n.GetId(), s.Workload.serviceAccount, s.Workload.Group),
		MaxAge:    s.XDS.MaxAge,
		Log:       log,
	}
	if k := a.certs; k != nil {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dial(ctx, address, s.own(), k.ClientTLS())
			if err != nil {
				return nil, err // not a nil connection in an interface
			}
			return conn, nil
		}
		c.Renewed, c.Refused, c.SetRoots = k.Renewed(), k.Refused, k.SetRoots
		c.Owner += ", " + k.Identity().ID.TrustDomain
	}
	if s.Workload.Group != "" {
		c.SetProbe = a.prober.Set
	}
	if s.Ports.DNS != 0 {
		c.SetNames = a.setNames
	}
	a.relay, err = relay.New(c)
	return err
}

// dialPlaintext opens a connection to a control plane on this machine, without an identity.
func dialPlaintext(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("control plane %s does not answer: %w", address, err)
	}
	return conn, nil
}

// newProber returns what checks the application.
func (a *Agent) newProber() *probe.Prober {
	w := &a.settings.Workload
	c := probe.Config{Settings: a.settings.Probe, Addresses: w.Addresses, Report: a.health.setApp, Log: a.log}
	if w.Interception == "none" && w.Type == "sidecar" {
		c.Listens = a.admin.Listeners
	}
	return probe.New(c)
}

// setNames passes a name table to the DNS server. The table of the cache arrives before there is a
// server.
func (a *Agent) setNames(body []byte) error {
	t, err := dns.ReadTable(body)
	if err != nil {
		return err
	}
	if a.names = t; a.dns != nil {
		a.dns.SetTable(t)
	}
	return nil
}

// reportHealth reports the workload's health to the control plane, now and after each reconnect.
func (a *Agent) reportHealth(h probe.Health) { a.relay.ReportHealth(h.Reason, h.Ports.List()) }
