package config

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// validateWorkloadGroup checks what workloads are registered by.
func validateWorkloadGroup(c *checker) {
	g := spec[*networking.WorkloadGroup](c)
	_, why := parseRanges(c.object.Annotations[AllowAddressesAnnotation])
	c.why(entry("metadata.annotations", AllowAddressesAnnotation), why)
	if unit, set := c.object.Annotations[ProbeUnitAnnotation]; set && !isUnitName(unit) {
		c.errorf(entry("metadata.annotations", ProbeUnitAnnotation),
			"%s is not the name of a systemd unit: write it with its type, such as nginx.service", quote(unit))
	}
	c.labels("spec.metadata.labels", g.Metadata.GetLabels())
	for _, k := range slices.Sorted(maps.Keys(g.Metadata.GetAnnotations())) {
		if k == AllowAddressesAnnotation || k == ProbeUnitAnnotation {
			c.errorf(entry("spec.metadata.annotations", k),
				"it is about the group and not its workloads: write it in metadata.annotations")
			continue
		}
		c.annotation("spec.metadata.annotations", WorkloadEntry, k, g.Metadata.Annotations[k])
	}
	switch t := g.Template; {
	case t == nil:
		c.errorf("spec.template", "the template is missing: write what the group's workloads share, at least serviceAccount, or {}")
	case t.Address != "":
		c.errorf("spec.template.address", "every workload of the group brings its own address: remove it")
	default:
		c.workloadSettings("spec.template", t)
	}
	if g.Probe != nil {
		c.probe("spec.probe", g.Probe)
	}
}

// isUnitName says that a text may name a systemd unit. Source: systemd.unit(5).
func isUnitName(name string) bool {
	unit := regexp.MustCompile(`^[a-zA-Z0-9:_.\\@-]+\.(service|socket|target|mount|path|timer|scope|slice|device|swap)$`)
	return len(name) < 256 && unit.MatchString(name)
}

// probe checks how a workload is asked whether it is ready.
func (c *checker) probe(path string, p *networking.ReadinessProbe) {
	switch m := p.HealthCheckMethod.(type) {
	case *networking.ReadinessProbe_HttpGet:
		c.httpProbe(path+".httpGet", m.HttpGet)
	case *networking.ReadinessProbe_TcpSocket:
		c.probeHost(path+".tcpSocket.host", m.TcpSocket.GetHost())
		c.port(path+".tcpSocket.port", m.TcpSocket.GetPort())
	case *networking.ReadinessProbe_Grpc:
		c.port(path+".grpc.port", m.Grpc.GetPort())
	case *networking.ReadinessProbe_Exec:
		if len(m.Exec.GetCommand()) == 0 || m.Exec.Command[0] == "" {
			c.errorf(path+".exec.command", "the command is missing: write the program and its arguments as a list")
		}
	default:
		c.errorf(path, "the probe does not say how to ask: write httpGet, tcpSocket, grpc or exec")
	}
}

// httpProbe checks a probe by an HTTP request.
func (c *checker) httpProbe(path string, h *networking.HTTPHealthCheckConfig) {
	c.probeHost(path+".host", h.GetHost())
	c.port(path+".port", h.GetPort())
	if p := h.GetPath(); p != "" && !strings.HasPrefix(p, "/") {
		c.errorf(path+".path", "a path begins with /, %s does not", quote(p))
	} else if _, err := url.ParseRequestURI(p); p != "" && err != nil {
		c.errorf(path+".path", "%s is not the path of a URL", quote(p))
	}
	if s := h.GetScheme(); s != "" && !strings.EqualFold(s, "HTTP") && !strings.EqualFold(s, "HTTPS") {
		c.errorf(path+".scheme", "the scheme is HTTP or HTTPS, not %s", quote(s))
	}
	for i, header := range h.GetHttpHeaders() {
		c.why(at(path+".httpHeaders", i)+".name", checkHeaderName(header.GetName()))
		c.why(at(path+".httpHeaders", i)+".value", checkHeaderText(header.GetValue()))
	}
}

// probeHost checks where a probe goes; empty is the workload's own address.
func (c *checker) probeHost(path, host string) {
	if host != "" && !isAddress(host) {
		c.why(path, checkHost(host))
	}
}
