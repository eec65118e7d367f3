package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// port checks the number of a port.
func (c *checker) port(path string, number uint32) {
	if number < 1 || number > 65535 {
		c.errorf(path, "a port is a number from 1 to 65535, not %d", number)
	}
}

// optionalPort checks a port of which 0 means none.
func (c *checker) optionalPort(path string, number uint32) {
	if number != 0 {
		c.port(path, number)
	}
}

// duration checks a time that must be at least a millisecond, in whole milliseconds, as proxies
// count; nil is none.
func (c *checker) duration(path string, d *durationpb.Duration) {
	if d != nil && c.durationOrZero(path, d) && d.AsDuration() == 0 {
		c.errorf(path, "the time must be at least 1ms")
	}
}

// durationOrZero checks a time of which 0 has a meaning, and says whether it is in order.
func (c *checker) durationOrZero(path string, d *durationpb.Duration) bool {
	if d == nil {
		return true
	}
	v := d.AsDuration()
	switch {
	case d.CheckValid() != nil:
		c.errorf(path, "the time is out of range")
	case v < 0:
		c.errorf(path, "the time must not be negative")
	case v%time.Millisecond != 0:
		c.errorf(path, "the time must be in whole milliseconds, not %s", v)
	case v > 10*365*24*time.Hour:
		c.errorf(path, "%s is longer than ten years: is the unit right?", v)
	default:
		return true
	}
	return false
}

// seconds checks a time that proxies keep in whole seconds, at least one.
func (c *checker) seconds(path string, d *durationpb.Duration) {
	if d == nil || !c.durationOrZero(path, d) {
		return
	}
	if v := d.AsDuration(); v < time.Second || v%time.Second != 0 {
		c.errorf(path, "the time must be in whole seconds, at least 1s, not %s", v)
	}
}

// percent checks a share from 0 to 100, which proxies keep in millionths.
func (c *checker) percent(path string, value float64) {
	const least = 0.0001
	switch {
	case value > 100:
		c.errorf(path, "a percentage is from 0 to 100, not %v", value)
	case value > 0 && value < least:
		c.errorf(path, "%v percent would be none: the smallest share is %v", value, least)
	}
}

// labels checks a set of labels.
func (c *checker) labels(path string, labels map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		c.why(entry(path, k), checkLabel(k, labels[k]))
	}
}

// exportTo checks a list of namespaces to which an object is visible. "~" (none) is only for
// services.
func (c *checker) exportTo(path string, namespaces []string, none bool) {
	c.unique(path, namespaces)
	for i, ns := range namespaces {
		switch {
		case ns == "*" || ns == ".":
		case ns == "~" && none:
		case ns == "~":
			c.errorf(at(path, i), "only a ServiceEntry can be exported to no namespace (~)")
		default:
			c.why(at(path, i), checkDNSLabel(ns))
		}
		if len(namespaces) > 1 && (ns == "*" || ns == "~") {
			c.errorf(at(path, i), "%s stands alone or not at all", quote(ns))
		}
	}
}

// protocols are the names that ports may give, in upper case.
func protocols() []string {
	return []string{"HTTP", "HTTPS", "HTTP2", "GRPC", "GRPC-WEB", "TCP", "TLS", "MONGO", "MYSQL", "REDIS", "UDP"}
}

// protocol checks the name of a protocol, in any case; those of except do not work here.
func (c *checker) protocol(path, name string, except ...string) {
	upper := strings.ToUpper(name)
	if slices.Contains(except, upper) {
		c.errorf(path, "%s does not work here: use one of %s", quote(name),
			strings.Join(allowedProtocols(except), ", "))
		return
	}
	if !slices.Contains(protocols(), upper) {
		c.errorf(path, "unknown protocol %s%s", quote(name), meantOrOneOf(name, allowedProtocols(except)))
	}
}

func allowedProtocols(except []string) []string {
	return slices.DeleteFunc(protocols(), func(p string) bool { return slices.Contains(except, p) })
}

// present are those of the named fields of m that are set.
func present(m proto.Message, names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		fd := m.ProtoReflect().Descriptor().Fields().ByJSONName(name)
		return !m.ProtoReflect().Has(fd) || isWrapper(fd.Message()) && isZero(m.ProtoReflect().Get(fd).Message())
	})
}

// others are the fields of m that are set, but for the named ones.
func others(m proto.Message, names ...string) []string {
	all := fieldNames(m.ProtoReflect().Descriptor().Fields())
	return present(m, slices.DeleteFunc(all, func(name string) bool { return slices.Contains(names, name) })...)
}
