package agent

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// UsageError is a setting that is wrong: what it is, what it should be.
type UsageError struct {
	// Setting is its name in the settings file; the flag is found by it too. What is only a flag is
	// that: "--token".
	Setting string
	Text    string
}

func (e *UsageError) Error() string { return e.Setting + ": " + e.Text }

// Complete fills in the defaults that depend on the machine and checks everything.
// The error joins a UsageError for each setting that is wrong.
func (s *Settings) Complete() error {
	if err := s.complete(); err != nil {
		return err
	}
	c := &checker{}
	c.workload(&s.Workload)
	c.controlPlane(s)
	c.ports(&s.Ports)
	c.envoy(&s.Envoy)
	c.rest(s)
	return errors.Join(c.errs...)
}

// checker collects what is wrong.
type checker struct{ errs []error }

func (c *checker) fail(setting, format string, args ...any) {
	c.errs = append(c.errs, &UsageError{setting, fmt.Sprintf(format, args...)})
}

func (c *checker) oneOf(setting, value string, known ...string) {
	if !slices.Contains(known, value) {
		c.fail(setting, "%q is not known; want %s", value, strings.Join(known, " or "))
	}
}

func (c *checker) between(setting string, value, low, high int) {
	if value < low || value > high {
		c.fail(setting, "%d is out of range; want %d to %d", value, low, high)
	}
}

func (c *checker) workload(w *Workload) {
	c.oneOf("workload.type", w.Type, "sidecar", "router")
	name := regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?$`)
	if !name.MatchString(w.Name) {
		c.fail("workload.name", "%q is not a name: letters, digits, '-', '.' and '_', up to 253", w.Name)
	}
	if !dnsname.ValidLabel(w.Namespace) {
		c.fail("workload.namespace", "%q is not a namespace: small letters, digits and '-', up to 63", w.Namespace)
	}
	if w.ServiceAccount != "" && !name.MatchString(w.ServiceAccount) {
		c.fail("workload.serviceAccount", "%q is not a name: letters, digits, '-', '.' and '_'", w.ServiceAccount)
	}
	if w.Group != "" && !name.MatchString(w.Group) {
		c.fail("workload.group", "%q is not the name of a WorkloadGroup: letters, digits, '-', '.' and '_'; its namespace is workload.namespace", w.Group)
	}
	if len(w.Addresses) == 0 {
		c.fail("workload.addresses",
			"not set; give the workload's own IP address, for a trial one of 127.0.0.2 to 127.0.0.254")
	}
	for _, a := range w.Addresses {
		ip, err := netip.ParseAddr(a)
		if err != nil || ip.IsUnspecified() || ip.Zone() != "" {
			c.fail("workload.addresses", "%q is not an IP address of a workload, such as 10.0.0.7 or 127.0.0.2", a)
		}
	}
	if !dnsname.Valid(w.Domain) {
		c.fail("workload.domain", "%q is not the suffix of host names; want small letters, digits and '-' between dots, such as cluster.local", w.Domain)
	}
	for _, k := range slices.Sorted(maps.Keys(w.Labels)) {
		if k == "" || strings.ContainsAny(k+w.Labels[k], " \t\n,=") {
			c.fail("workload.labels", "%q: %q is not a label; want name and value without spaces, ',' and '='", k,
				w.Labels[k])
		}
	}
	if strings.Count(w.Locality, "/") > 2 || strings.HasPrefix(w.Locality, "/") {
		c.fail("workload.locality", "%q is not a locality; want region, region/zone or region/zone/subzone", w.Locality)
	}
	c.oneOf("workload.interception", w.Interception, "none", "redirect", "tproxy")
	if w.Type == "router" && w.Interception == "tproxy" {
		c.fail("workload.interception", "a router has no application whose traffic could be intercepted; want none")
	}
	c.between("workload.httpProxyPort", w.HTTPProxyPort, 0, 65535)
}

func (c *checker) controlPlane(s *Settings) {
	if len(s.XDS.Addresses) == 0 {
		c.fail("xds.addresses", "not set; give host:port of the control plane, such as 127.0.0.1:15010 for an \"ashored --dev\" on this machine; \"ashore-agent join\" sets it")
	}
	if s.XDS.MaxAge < 0 {
		c.fail("xds.maxAge", "%v is less than no time; want 0 (24h) or more", s.XDS.MaxAge)
	}
	for _, a := range s.XDS.Addresses {
		if _, _, err := hostPort(a); err != nil {
			c.fail("xds.addresses", "%v", err)
		}
	}
}

// hostPort splits an address and checks its port.
func hostPort(address string) (host string, port uint32, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%q is not host:port; want one such as ashore.example.com:15012, with --dev 127.0.0.1:15010", address)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q has no port between 1 and 65535; want one such as ashore.example.com:15012, with --dev 127.0.0.1:15010", address)
	}
	return host, uint32(n), nil
}

func (c *checker) ports(p *Ports) {
	c.between("ports.status", p.Status, 1, 65535)
	c.between("ports.health", p.Health, 0, 65535)
	c.between("ports.metrics", p.Metrics, 0, 65535)
	c.between("ports.dns", p.DNS, 0, 65535)
}

// The ports that connections are redirected to.
const (
	outboundPort = 15001
	inboundPort  = 15006
)

func (c *checker) envoy(e *Envoy) {
	if !regexp.MustCompile(`^([A-Za-z0-9:_.-]+(@[A-Za-z0-9:_.-]+)?)?$`).MatchString(e.Unit) {
		c.fail("envoy.unit", "%q is not the name of a template of systemd units; want ashore-envoy, or ashore-envoy@WORKLOAD", e.Unit)
	}
	if e.Unit != "" && e.Path != "" {
		c.fail("envoy.path", "units run %s; leave it out, or leave envoy.unit out", PackagedEnvoy)
	}
	if e.ParentShutdown < time.Second {
		c.fail("envoy.parentShutdown", "%v is too short; want 1s or more, and more than the longest request",
			e.ParentShutdown)
	}
	c.between("envoy.concurrency", e.Concurrency, 0, 1024)
	c.oneOf("envoy.logLevel", e.LogLevel, "trace", "debug", "info", "warning", "error", "critical", "off")
	c.between("envoy.maxConnections", e.MaxConnections, 1, 10_000_000)
}

func (c *checker) rest(s *Settings) {
	if s.Drain.Leave < 0 {
		c.fail("drain.leave", "%v is less than no time; want 0 or more", s.Drain.Leave)
	}
	if s.Drain.Maximum < 0 {
		c.fail("drain.maximum", "%v is less than no time; want 0 or more", s.Drain.Maximum)
	}
	if u, err := url.Parse(s.Metrics.Application); s.Metrics.Application != "" &&
		(err != nil || u.Scheme != "http" || u.Host == "") {
		c.fail("metrics.application",
			"%q is not the URL of the application's metrics; want one such as http://127.0.0.1:9100/metrics", s.Metrics.Application)
	}
	s.Interception.Validate(func(field, format string, args ...any) { c.fail("interception."+field, format, args...) })
	for _, one := range s.DNS.Servers {
		if _, err := dnsServer(one); err != nil {
			c.fail("dns.servers", "%q is not an IP address, with or without a port; want one such as 10.0.0.2", one)
		}
	}
	c.oneOf("log.level", s.Log.Level, "trace", "debug", "info", "warn", "error")
	c.oneOf("log.format", s.Log.Format, "text", "json")
	// made or not: a folder is for all ways to run
	for _, path := range []string{s.adminSocket(), s.xdsSocket(), s.agentSocket()} {
		if len(path) > maxSocketPath {
			c.fail("state", "the socket %s would have %d letters and a socket's name has at most %d; choose a shorter folder", path, len(path), maxSocketPath)
			return
		}
	}
}

// maxSocketPath is what a unix socket's address holds on Linux, without the final zero byte:
// unix(7).
const maxSocketPath = 107
