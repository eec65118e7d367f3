package agent

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// UsageError means that a setting is wrong.
type UsageError struct {
	// Setting is its name in the settings file, or a flag that has no setting: "--group".
	Setting string
	Text    string
}

func (e *UsageError) Error() string { return e.Setting + ": " + e.Text }

// Complete fills in defaults that depend on the machine, and checks all settings. The error joins a
// UsageError for each setting that is wrong.
func (s *Settings) Complete() error {
	if err := s.complete(); err != nil {
		return err
	}
	c := &checker{}
	c.workload(&s.Workload)
	c.controlPlane(&s.XDS)
	c.envoy(&s.Envoy)
	c.rest(s)
	return errors.Join(c.errs...)
}

// checker collects errors.
type checker struct{ errs []error }

func (c *checker) want(ok bool, setting, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, &UsageError{setting, fmt.Sprintf(format, args...)})
	}
}

func (c *checker) fail(setting, format string, args ...any) { c.want(false, setting, format, args...) }

func (c *checker) oneOf(setting, value string, known ...string) {
	c.want(slices.Contains(known, value), setting, "%q is not known; want %s", value, strings.Join(known, " or "))
}

func (c *checker) between(setting string, value, low, high int) {
	c.want(low <= value && value <= high, setting, "%d is out of range; want %d to %d", value, low, high)
}

func (c *checker) workload(w *Workload) {
	c.oneOf("workload.type", w.Type, "sidecar", "router")
	name := regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?$`)
	c.want(name.MatchString(w.Name), "workload.name",
		"%q is not a name: letters, digits, '-', '.' and '_', up to 253", w.Name)
	c.want(dnsname.ValidLabel(w.Namespace), "workload.namespace",
		"%q is not a namespace: small letters, digits and '-', up to 63", w.Namespace)
	c.want(w.Group == "" || name.MatchString(w.Group), "workload.group",
		"%q is not the name of a WorkloadGroup: letters, digits, '-', '.' and '_'; its namespace is workload.namespace",
		w.Group)
	c.want(len(w.Addresses) > 0, "workload.addresses",
		"not set; give the workload's own IP address, for a trial one of 127.0.0.2 to 127.0.0.254")
	for _, a := range w.Addresses {
		ip, err := netip.ParseAddr(a)
		c.want(err == nil && !ip.IsUnspecified() && ip.Zone() == "", "workload.addresses",
			"%q is not an IP address of a workload, such as 10.0.0.7 or 127.0.0.2", a)
	}
	for _, k := range slices.Sorted(maps.Keys(w.Labels)) {
		c.want(k != "" && !strings.ContainsAny(k+w.Labels[k], " \t\n,="), "workload.labels",
			"%q: %q is not a label; want name and value without spaces, ',' and '='", k, w.Labels[k])
	}
	c.want(strings.Count(w.Locality, "/") <= 2 && !strings.HasPrefix(w.Locality, "/"), "workload.locality",
		"%q is not a locality; want region, region/zone or region/zone/subzone", w.Locality)
	c.oneOf("workload.interception", w.Interception, "none", "redirect", "tproxy")
	c.want(w.Type != "router" || w.Interception != "tproxy", "workload.interception",
		"a router has no application whose traffic could be intercepted; want none")
	c.between("workload.httpProxyPort", w.HTTPProxyPort, 0, 65535)
}

func (c *checker) controlPlane(x *XDS) {
	c.want(len(x.Addresses) > 0, "xds.addresses", "not set; give host:port of the control plane, "+
		"such as 127.0.0.1:15010 for an \"ashored --dev\" on this machine; \"ashore-agent join\" sets it")
	c.notNegative("xds.maxAge", x.MaxAge)
	for _, a := range x.Addresses {
		host, port, err := net.SplitHostPort(a)
		n, portErr := strconv.ParseUint(port, 10, 16)
		c.want(err == nil && host != "" && portErr == nil && n > 0, "xds.addresses", "%q is not host:port; want one such "+
			"as ashore.example.com:15012, with --dev 127.0.0.1:15010", a)
	}
}

func (c *checker) notNegative(setting string, d time.Duration) {
	c.want(d >= 0, setting, "%v is negative; want 0 or more", d)
}

// The ports that connections are redirected to.
const (
	outboundPort = 15001
	inboundPort  = 15006
)

func (c *checker) envoy(e *Envoy) {
	c.want(!e.units || e.Path == "", "envoy.path", "units run %s; leave it out", PackagedEnvoy)
	c.notNegative("envoy.drainTime", e.DrainTime)
	c.want(e.ParentShutdown >= time.Second, "envoy.parentShutdown",
		"%v is too short; want 1s or more, and more than the longest request", e.ParentShutdown)
	c.between("envoy.concurrency", e.Concurrency, 0, maxConcurrency)
}

func (c *checker) rest(s *Settings) {
	c.between("ports.dns", s.Ports.DNS, 0, 65535)
	c.notNegative("drain.maximum", s.Drain.Maximum)
	s.Interception.Validate(func(field, format string, args ...any) { c.fail("interception."+field, format, args...) })
	for _, one := range s.DNS.Servers {
		_, err := dnsServer(one)
		c.want(err == nil, "dns.servers", "%q is not an IP address, with or without a port; want one such as 10.0.0.2",
			one)
	}
	c.oneOf("log.level", s.Log.Level, "trace", "debug", "info", "warn", "error")
	// all of them, so that the same folder works however the agent runs
	sockets := []string{s.adminSocket(), s.xdsSocket(), filepath.Join(s.State, agentSocket)}
	if s.Envoy.units { // Envoy's longest one. Source: hot_restarting_base.cc
		sockets = append(sockets, filepath.Join(s.envoyFolder(), "hot_udp_parent_1234567890"))
	}
	for _, path := range sockets {
		c.want(len(path) <= maxSocketPath, "state",
			"the path of the socket %s has %d bytes and may have %d; choose a shorter folder",
			path, len(path), maxSocketPath)
	}
}

// maxSocketPath is the maximum length of a unix socket's path on Linux. Source: unix(7).
const maxSocketPath = 107
