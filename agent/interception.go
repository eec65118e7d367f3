package agent

import (
	"fmt"
	"os"
	"strings"

	"github.com/ashore-mesh/ashore/agent/intercept"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// InterceptConfig returns the input of the rules of a workload with interception "tproxy", and the
// checks of its machine. The settings are complete.
func InterceptConfig(s *Settings) (intercept.Config, intercept.Checks, error) {
	if s.Workload.Interception != "tproxy" {
		return intercept.Config{}, intercept.Checks{}, &UsageError{"workload.interception",
			fmt.Sprintf("it is %s; set it to tproxy for rules of Ashore", s.Workload.Interception)}
	}
	c := intercept.Config{Settings: s.Interception}
	if s.capturesDNS() {
		c.DNSPort = s.Ports.DNS
	}
	return c, intercept.Checks{
		ControlPlane: s.XDS.Addresses,
		Plaintext:    s.Dev,
		Ready:        "http://" + s.at(statusPort) + "/healthz/ready",
	}, nil
}

// notIntercepted is the reason of a workload that is unhealthy until its rules are installed.
const notIntercepted = "the interception rules are not installed"

// intercepted reports whether the rules of "tproxy" are installed and confirmed. It is true for
// other kinds of interception, whose rules are not the agent's.
func (s *Settings) intercepted() bool {
	if s.Workload.Interception != "tproxy" || s.Workload.Group == "" {
		return true
	}
	_, err := os.Stat(intercept.InstalledFile)
	return err == nil
}

// reportInterception adds a line for a workload whose callers bypass Envoy.
func (a *Agent) reportInterception(r *Report) {
	if !a.settings.intercepted() {
		r.bad("interception", "run \"ashore-agent intercept install\" as root", notIntercepted+": callers would bypass Envoy")
		return
	}
	if ports := a.config.Load().GetProxyMetadata()[resource.BypassedPorts]; ports != "" {
		name := "port "
		if strings.Contains(ports, ",") {
			name = "ports "
		}
		r.warn("interception", "let the application listen on 127.0.0.1 alone, where Envoy then listens for it, or "+
			"intercept the traffic",
			"connections to %s reach the application past Envoy: no mutual TLS and no policies there", name+ports)
	}
}
