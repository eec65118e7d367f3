package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// workloadGroup checks what workloads are registered by.
func (c *checker) workloadGroup(g *networking.WorkloadGroup) {
	_, why := parseRanges(c.object.Annotations[AllowAddressesAnnotation])
	c.why(entry("metadata.annotations", AllowAddressesAnnotation), why)
	for _, k := range slices.Sorted(maps.Keys(c.object.Annotations)) {
		c.groupAnnotation("metadata.annotations", k, c.object.Annotations[k])
	}
	for _, k := range slices.Sorted(maps.Keys(g.Metadata.GetAnnotations())) {
		c.groupAnnotation("spec.metadata.annotations", k, g.Metadata.Annotations[k])
		if k == AllowAddressesAnnotation {
			c.errorf(entry("spec.metadata.annotations", k),
				"it is about the group and not its workloads: write it in metadata.annotations")
			continue
		}
		c.annotation("spec.metadata.annotations", WorkloadEntry, k, g.Metadata.Annotations[k])
	}
	if g.Template == nil {
		c.errorf("spec.template", "the template is missing: write what the group's workloads share, at least serviceAccount, or {}")
	}
}

// probe checks how a workload is asked whether it is ready.
func (c *checker) probe(path string, p *networking.ReadinessProbe) {
	if p.HealthCheckMethod == nil {
		c.errorf(path, "the probe does not say how to ask: write httpGet, tcpSocket, grpc or exec")
	}
	if command := p.GetExec().GetCommand(); p.GetExec() != nil && (len(command) == 0 || command[0] == "") {
		c.errorf(path+".exec.command", "the command is missing: write the program and its arguments as a list")
	}
}

// checkProbePath is the rule for the path of a probe by HTTP.
func checkProbePath(path string) string {
	if !strings.HasPrefix(path, "/") {
		return "a path begins with /, " + quote(path) + " does not"
	}
	if _, err := url.ParseRequestURI(path); err != nil {
		return quote(path) + " is not the path of a URL"
	}
	return ""
}

// checkProbeScheme is the rule for how a probe by HTTP is sent.
func checkProbeScheme(scheme string) string {
	return oneOf("scheme", []string{"HTTP", "HTTPS"})(strings.ToUpper(scheme))
}
