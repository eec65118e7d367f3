package agent

import (
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/internal/build"
)

// ownMetrics returns the agent's own metrics. appErr is why the application's are missing.
// docs/metrics.md has all of them.
func (a *Agent) ownMetrics(appErr error) []byte {
	var out []byte
	labelled := func(name, labels, help string, value float64) {
		kind := "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		const form = "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n%[1]s%[4]s %[5]v\n"
		out = fmt.Appendf(out, form, name, help, kind, labels, value)
	}
	add := func(name, help string, value float64) { labelled(name, "", help, value) }
	labelled("ashore_agent_info", fmt.Sprintf("{version=%q}", build.Read().String()), "1, with the agent's version.", 1)
	state, link := a.envoy.State(), a.relay.Status()
	add("ashore_agent_envoy_restarts_total", "How often Envoy was started again.", float64(max(state.Runs-1, 0)))
	add("ashore_agent_envoy_up", "1 while an Envoy process runs.", boolean(state.PID != 0))
	add("ashore_agent_envoy_ready", "1 while Envoy serves with a configuration of the control plane.",
		boolean(a.health.ready() == nil))
	add("ashore_agent_xds_connected", "1 while a control plane is connected.", boolean(link.Connected != ""))
	add("ashore_agent_rejected_resources", "Resources that Envoy rejected.", float64(len(link.Rejected)))
	add("ashore_agent_configuration_saved", "1 while the configuration can be written to disk.",
		boolean(link.CacheError == ""))
	if free, err := freeSpace(a.settings.State); err == nil {
		add("ashore_agent_disk_free_bytes", "Free space of the disk of the state folder.", float64(free))
	}
	if h, known := a.health.Health(); known {
		add("ashore_agent_workload_healthy", "1 while the workload is reported as healthy.", boolean(h.Reason == ""))
	}
	if len(a.applicationURLs()) > 0 {
		if appErr != nil {
			out = fmt.Appendf(out, "# The metrics of the application are missing: %q\n", appErr)
		}
		add("ashore_agent_application_up", "1 if the application's metrics were read.", boolean(appErr == nil))
	}
	if a.certs != nil {
		id, n := a.certs.Identity(), a.certs.Renewal()
		add("ashore_agent_certificate_expiry_timestamp_seconds", "When the certificate ends, in seconds since 1970.",
			float64(id.Leaf().NotAfter.Unix()))
		add("ashore_agent_certificate_renewals_total", "Certificates received since the agent started.", float64(n.Count))
		add("ashore_agent_certificate_renewal_failures", "Failed renewals since the last certificate was received.",
			float64(n.Tries))
		add("ashore_agent_root_certificates", "Certificates in the trust bundle.", float64(len(id.Roots.Roots)))
	}
	if a.dns != nil {
		s := a.dns.State()
		add("ashore_agent_dns_names", "Names of the mesh that the agent resolves.", float64(s.Names))
		add("ashore_agent_dns_answered_total", "DNS queries answered with addresses of the mesh.", float64(s.Answered))
		add("ashore_agent_dns_forwarded_total", "DNS queries that another server answered.", float64(s.Forwarded))
		add("ashore_agent_dns_failed_total",
			"DNS queries that no server answered, or that exceeded the limit of pending queries.", float64(s.Failed))
	}
	return out
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
