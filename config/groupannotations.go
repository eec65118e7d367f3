package config

import (
	"cmp"
	"maps"
	"strconv"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
)

// Istio's annotations of a WorkloadGroup. They are in its metadata or in those of its workloads,
// which take precedence.
const (
	scrapeAnnotation      = "prometheus.io/scrape"
	portAnnotation        = "prometheus.io/port"
	pathAnnotation        = "prometheus.io/path"
	proxyConfigAnnotation = "proxy.istio.io/config"
)

// GroupSettings returns what the annotations of a valid WorkloadGroup say to its proxies: the
// ProxyConfig, and where the application serves its metrics: port and path, "9100/metrics", empty if
// nowhere.
// Source: istio.io, "Prometheus: option 1, metrics merging", and ProxyConfig.
func GroupSettings(group *Object) (config *mesh.ProxyConfig, application string) {
	all := maps.Clone(group.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, group.Spec.(*networking.WorkloadGroup).GetMetadata().GetAnnotations())
	config, _ = decodeProxyConfig("", all[proxyConfigAnnotation])
	scrape, err := strconv.ParseBool(cmp.Or(all[scrapeAnnotation], strconv.FormatBool(all[portAnnotation] != "")))
	if err == nil && scrape {
		application = cmp.Or(all[portAnnotation], "80") + cmp.Or(all[pathAnnotation], "/metrics")
	}
	return config, application
}

// checkStatName is the rule for a part of the name of a statistic.
func checkStatName(part string) string {
	if part == "" {
		return "it is empty, and so is part of every name: remove it, or write all as the regular expression .*"
	}
	return ""
}

// groupAnnotation checks one of Istio's annotations of a WorkloadGroup.
func (c *checker) groupAnnotation(path, name, value string) {
	path = entry(path, name)
	switch name {
	case scrapeAnnotation:
		if _, err := strconv.ParseBool(value); err != nil {
			c.errorf(path, "%s is neither \"true\" nor \"false\"", quote(value))
		}
	case portAnnotation:
		port, err := strconv.ParseUint(value, 10, 16)
		if owner := machinePort(int32(port)); err != nil || port == 0 {
			c.errorf(path, "a port is a number from 1 to 65535, not %s", quote(value))
		} else if owner != "" {
			c.errorf(path, "port %d is for %s: write the port of the application's metrics", port, owner)
		}
	case pathAnnotation:
		c.why(path, checkProbePath(value))
	case proxyConfigAnnotation:
		c.proxyConfig(path, value)
	}
}

// proxyConfig checks a ProxyConfig in an annotation.
func (c *checker) proxyConfig(path, text string) {
	config, problems := decodeProxyConfig(path, text)
	for _, p := range problems {
		c.errorf(p.Field, "%s", p.Text)
	}
	checkFields(c, path, "defaultConfig", config.ProtoReflect(), proxyFields())
	if config.GetTracing().GetZipkin() != nil {
		c.warnf(path+".tracing.zipkin",
			"this has no effect: the collector is that of the mesh; remove it, or name a provider in a Telemetry")
	}
}

// decodeProxyConfig reads a ProxyConfig, written as YAML. path is that of the text.
func decodeProxyConfig(path, text string) (*mesh.ProxyConfig, []Problem) {
	out := &mesh.ProxyConfig{}
	p := newParser("", []byte(text))
	for _, doc := range p.documents([]byte(text)) {
		if p.affordable(doc) {
			d := &decoder{parser: p, root: doc, where: fieldLines{}}
			d.message(path, out.ProtoReflect(), deref(doc))
		}
	}
	for i := range p.problems {
		p.problems[i].Field = cmp.Or(p.problems[i].Field, path)
	}
	return out, p.problems
}
