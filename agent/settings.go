package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/agent/intercept"
	"github.com/ashore-mesh/ashore/agent/probe"
	"github.com/ashore-mesh/ashore/internal/peername"
)

// Settings are the agent's settings file. Default returns the defaults.
type Settings struct {
	// Dev is plaintext to the control plane, without an identity, for trials on one machine.
	Dev bool `yaml:"dev"`
	// State is the folder for the identity, the bootstrap and the sockets, made when missing, with
	// mode 0700. Empty: below /var/lib/ashore-agent, for users other than root below
	// ~/.local/state/ashore-agent, with Dev below the user's cache folder.
	State    string         `yaml:"state"`
	Workload Workload       `yaml:"workload"`
	XDS      XDS            `yaml:"xds"`
	Envoy    Envoy          `yaml:"envoy"`
	Ports    Ports          `yaml:"ports"`
	DNS      DNS            `yaml:"dns"`
	Probe    probe.Settings `yaml:"probe"`
	Drain    Drain          `yaml:"drain"`
	// Interception is what the rules of "tproxy" intercept.
	Interception intercept.Settings `yaml:"interception"`
	Log          Log                `yaml:"log"`
}

// Workload describes the workload that Envoy serves.
type Workload struct {
	// Type is "sidecar" or "router" (a gateway).
	Type string `yaml:"type"`
	// Name is unique within the namespace. Empty: the machine's host name.
	Name string `yaml:"name"`
	// Namespace is where its configuration lives.
	Namespace string `yaml:"namespace"`
	// Group is its WorkloadGroup, in the same namespace. Empty: it is not registered.
	Group string `yaml:"group"`
	// Addresses are its IP addresses. Envoy and the agent open their ports on the first one.
	Addresses []string `yaml:"addresses"`
	// Labels are matched by selectors and subsets.
	Labels map[string]string `yaml:"labels"`
	// Locality is "region", "region/zone" or "region/zone/subzone".
	Locality string `yaml:"locality"`
	// Network names the network whose addresses it reaches directly.
	Network string `yaml:"network"`
	// Cluster is the ID of its cluster of Kubernetes. Empty: it is in none, or in the only one whose
	// tokens the control plane accepts.
	Cluster string `yaml:"cluster"`
	// Interception says how the workload's traffic reaches Envoy: "none", "redirect" (by the
	// operator's own rules) or "tproxy" (by the rules of "ashore-agent intercept").
	Interception string `yaml:"interception"`
	// HTTPProxyPort makes Envoy an HTTP proxy of the mesh on this port. Zero: as the mesh says.
	HTTPProxyPort int `yaml:"httpProxyPort"`

	serviceAccount string        // of its certificate; empty: it has none
	certName       peername.Name // of its certificate; empty: it has none
}

// XDS is where the control plane answers.
type XDS struct {
	// Addresses are host:port of its replicas.
	Addresses []string `yaml:"addresses"`
	// TokenFile has a token (JWT) of the workload's service account, such as one that Kubernetes
	// projects into a Pod. It is read for each request for a certificate. Empty: a one-time token
	// proves who joins, and the certificate who renews.
	TokenFile string `yaml:"tokenFile"`
	// CAFile has the root certificates by which a join verifies the control plane. Empty: the hash of
	// the join command does.
	CAFile string `yaml:"caFile"`
	// MaxAge is the maximum age of a configuration that no control plane confirmed. An older copy
	// on disk is not used, because it lacks revocations and policies. Zero: 24h.
	MaxAge time.Duration `yaml:"maxAge"`
}

// Envoy is the program that is run.
type Envoy struct {
	// Path is the program. Empty: "envoy" in PATH, else PackagedEnvoy. Units run PackagedEnvoy
	// alone.
	Path string `yaml:"path"`
	// Concurrency is the number of worker threads. Zero: as ProxyConfig says, else one for each
	// processor, at most two.
	Concurrency int `yaml:"concurrency"`
	// DrainTime is how long connections of a changed or removed listener may continue. The default
	// gives way to ProxyConfig.
	// Source: istio.io ProxyConfig.drainDuration.
	DrainTime time.Duration `yaml:"drainTime"`
	// ParentShutdown is how long a replaced Envoy of a unit may finish its requests.
	// Source: istio.io ProxyConfig.parentShutdownDuration.
	ParentShutdown time.Duration `yaml:"parentShutdown"`

	units    bool   // systemd units run Envoy; set by UseUnits
	workload string // in the units' names; empty: the machine's main workload
	folder   string // of the units' files; empty: UnitFolder; tests use another one
	program  string // of the units; empty: PackagedEnvoy; tests use another one

	mesh *meshconfig.ProxyConfig // with which Envoy was started; set by New
}

// UseUnits makes systemd units run Envoy: ashore-envoy@N.service for the main workload of the
// machine, ashore-envoy@WORKLOAD-N.service for another one.
func (s *Settings) UseUnits(workload string) { s.Envoy.units, s.Envoy.workload = true, workload }

// The ports on the workload's own address. The numbers are Istio's.
const (
	statusPort  = 15020 // the agent's: GET /healthz/ready and /metrics
	healthPort  = 15021 // Envoy's: GET /healthz/ready through Envoy, which proves that Envoy serves
	metricsPort = 15090 // Envoy's: GET /stats/prometheus
)

// Ports are the ports that an operator can choose.
type Ports struct {
	// DNS is the agent's DNS port, over UDP and TCP, on a loopback address. Zero: closed.
	DNS int `yaml:"dns"`
}

// DNS configures the agent's DNS server.
type DNS struct {
	// Servers answer for names outside the mesh: "10.0.0.2" or "10.0.0.2:5353".
	// Empty: those of /etc/resolv.conf.
	Servers []string `yaml:"servers"`
}

// Drain configures how Envoy ends.
type Drain struct {
	// Maximum is how long the agent waits for open connections to end. The default gives way to
	// ProxyConfig.
	// Source: istio.io ProxyConfig.terminationDrainDuration.
	Maximum time.Duration `yaml:"maximum"`
}

// leave is how long Envoy continues to serve after the workload left the endpoints, so that callers
// and load balancers notice.
func (d Drain) leave() time.Duration { return min(time.Second, d.Maximum/5) }

// Log configures the agent's log.
type Log struct {
	// Level is trace, debug, info, warn or error.
	Level string `yaml:"level"`
}

// Default returns the default settings.
func Default() Settings {
	return Settings{
		Workload: Workload{Type: "sidecar", Namespace: "default", Interception: "none"},
		Envoy:    Envoy{DrainTime: 45 * time.Second, ParentShutdown: 10 * time.Minute},
		Ports:    Ports{DNS: 15053},
		Probe:    probe.Settings{CheckPorts: true},
		Drain:    Drain{Maximum: 5 * time.Second},
		Log:      Log{Level: "info"},

		Interception: intercept.Default(),
	}
}

// complete fills in defaults that depend on the machine or on other settings.
func (s *Settings) complete() error {
	if s.Workload.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the host name (or set workload.name): %w", err)
		}
		s.Workload.Name = name
	}
	if s.State != "" {
		return nil
	}
	base, err := stateBase(s.Dev)
	if err != nil {
		return err
	}
	s.State = filepath.Join(base, s.Workload.Name+"."+s.Workload.Namespace)
	return nil
}

// own is the address that ports are opened on. The settings are complete.
func (s *Settings) own() netip.Addr {
	return netip.MustParseAddr(s.Workload.Addresses[0])
}

// at is a port on the workload's own address.
func (s *Settings) at(port int) string {
	return netip.AddrPortFrom(s.own(), uint16(port)).String()
}
