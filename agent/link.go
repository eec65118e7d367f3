package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/agent/dns"
	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/internal/build"
)

// link stands between Envoy and the control planes: Envoy's configuration comes through it.
type link interface {
	localService
	// Run speaks with the control planes until ctx ends.
	Run(ctx context.Context) error
	// ReportHealth tells the control plane how the application is, now and after each reconnect.
	ReportHealth(Health)
	// LinkState says how it stands.
	LinkState() LinkState
	// Checks delivers how the application is checked whenever the control plane sends it; nothing for a workload without a
	// group.
	Checks() <-chan appCheck
	// Names delivers the latest name table of the mesh whenever it changes; nothing when DNS is off.
	Names() <-chan *dns.Table
}

// linkMaker makes the link of a workload.
type linkMaker func(s *Settings, k *Keeper, log hclog.Logger) (link, error)

// LinkState is how the connection with the control planes stands.
type LinkState struct {
	// Address is the control plane that is connected; empty: none.
	Address string `json:"address,omitempty"`
	// Since is when it was connected, or since when none is.
	Since time.Time `json:"since"`
	// Trouble is why none is; empty when one is.
	Trouble string `json:"trouble,omitempty"`
	// CopyFrom is when the configuration that Envoy has was last known to be the control plane's, when it comes from
	// the copy on disk; zero: it is live.
	CopyFrom time.Time `json:"copyFrom,omitzero"`
	// Confirmed is when a control plane confirmed last what Envoy has; zero: never. Old says that this is longer ago than the
	// setting xds.maxAge.
	Confirmed time.Time `json:"confirmed,omitzero"`
	Old       bool      `json:"old,omitempty"`
	// CopyRefused is why the copy on disk was not used, and CopyError why it cannot be written; empty: neither.
	CopyRefused string `json:"copyRefused,omitempty"`
	CopyError   string `json:"copyError,omitempty"`
	// Rejected is what Envoy refused of its configuration, in its words; empty: nothing.
	Rejected string `json:"rejected,omitempty"`
	// Bypassed are the ports of the workload at which connections reach it past Envoy, "80, 81".
	Bypassed string `json:"bypassed,omitempty"`
}

// newLink is the product's: a relay, over connections that present the workload's certificate.
func newLink(s *Settings, k *Keeper, log hclog.Logger) (link, error) {
	n, err := node(s, streamControl)
	if err != nil {
		return nil, err
	}
	// Not in Envoy's bootstrap: an agent that is upgraded is no reason to replace Envoy.
	n.Metadata.Fields["ASHORE_VERSION"] = structpb.NewStringValue(build.Read().Version)
	checks, names := make(chan appCheck, 1), make(chan *dns.Table, 1)
	r, err := relay.New(relay.Config{
		Node:      n,
		Addresses: s.XDS.Addresses,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dial(ctx, address, s.own(), k.ClientTLS())
			if err != nil {
				return nil, err // not a nil connection in an interface
			}
			return conn, nil
		},
		Renewed:   k.Renewed(),
		Refused:   k.Refused,
		SetRoots:  k.SetRoots,
		SetProbe:  setProbe(s, checks),
		SetNames:  setNames(s, names),
		CacheFile: cacheFile(s.State),
		Owner:     fmt.Sprintf("%s, %s, group %s", n.GetId(), k.Identity().ID, s.Workload.Group),
		MaxAge:    s.XDS.MaxAge,
		Log:       log,
	})
	if err != nil {
		return nil, err
	}
	return relayLink{r, checks, names}, nil
}

// setProbe passes the group's probe on, and returns why it is refused; nil for a workload without a group.
func setProbe(s *Settings, checks chan appCheck) func(*networking.ReadinessProbe) error {
	if s.Workload.Group == "" {
		return nil
	}
	return func(p *networking.ReadinessProbe) error {
		c := newAppCheck(p, s)
		select {
		case <-checks: // not read yet
		default:
		}
		checks <- c
		if c.refused != nil {
			return c.refused
		}
		return nil
	}
}

// setNames hands on the latest name table; nil when DNS is off.
func setNames(s *Settings, names chan *dns.Table) func([]byte) error {
	if s.Ports.DNS == 0 {
		return nil
	}
	return func(body []byte) error {
		t, err := dns.ReadTable(body)
		if err != nil {
			return err
		}
		select {
		case <-names: // not read yet
		default:
		}
		names <- t
		return nil
	}
}

// cacheFile is the path of the cache of the configuration in a state folder.
func cacheFile(state string) string { return filepath.Join(state, "configuration.cache") }

// relayLink is the relay in the agent's words.
type relayLink struct {
	*relay.Relay
	checks chan appCheck   // capacity 1
	names  chan *dns.Table // capacity 1
}

// Checks implements link.
func (l relayLink) Checks() <-chan appCheck { return l.checks }

// Names implements link.
func (l relayLink) Names() <-chan *dns.Table { return l.names }

// ReportHealth implements link.
func (l relayLink) ReportHealth(h Health) {
	var err error
	if !h.Healthy {
		err = errors.New(h.Reason)
	}
	l.Relay.ReportHealth(err, h.Ports.List()...)
}

// LinkState implements link.
func (l relayLink) LinkState() LinkState {
	s := l.Status()
	out := LinkState{Address: s.Connected, Since: s.Since, CopyFrom: s.CachedAt, Confirmed: s.Confirmed, Old: s.Old,
		CopyRefused: s.CacheRefused, CopyError: s.CacheError, Bypassed: s.Bypassed, Rejected: refusedText(s.Rejected)}
	if s.Connected == "" {
		out.Trouble = s.LastError
	}
	return out
}

// maxRefused bounds the rejected resources in a report, and maxRefusedWords Envoy's message about each, in bytes: Envoy may
// reject everything.
const maxRefused, maxRefusedWords = 10, 1 << 10

// refusedText is what Envoy refuses, for people.
func refusedText(words []string) string {
	var out []string
	for _, w := range words[:min(len(words), maxRefused)] {
		out = append(out, strings.ToValidUTF8(w[:min(len(w), maxRefusedWords)], ""))
	}
	if more := len(words) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
