package peername

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Name says which workload a certificate is of.
type Name struct {
	// Workload is the name that all workloads of a WorkloadGroup have.
	Workload string
	// Service and Revision are the canonical service and its revision.
	Service, Revision string
	// Cluster is the cluster ID of the mesh.
	Cluster string
}

// WorkloadLabel is the label with the name of a workload. Source: Istio.
const WorkloadLabel = "service.istio.io/workload-name"

// DefaultRevision is the revision of a workload whose labels have none. Source: Istio.
const DefaultRevision = "latest"

// Of returns the name of a workload with labels. workload is its name where no label has one.
// Source: istio.io, "Canonical Service".
func Of(labels map[string]string, workload, cluster string) Name {
	n := Name{Workload: cmp.Or(labels[WorkloadLabel], workload), Cluster: cluster}
	n.Service = cmp.Or(labels["service.istio.io/canonical-name"], labels["app.kubernetes.io/name"], labels["app"],
		n.Workload)
	n.Revision = cmp.Or(labels["service.istio.io/canonical-revision"], labels["app.kubernetes.io/version"],
		labels["version"], DefaultRevision)
	return n
}

// ServiceOf returns the short name and the namespace of a service by its host,
// NAME.NAMESPACE.svc.DOMAIN. Of any other host, the name is the host, and the namespace is empty.
func ServiceOf(host string) (name, namespace string) {
	if p := strings.SplitN(host, ".", 4); len(p) == 4 && p[2] == "svc" {
		return p[0], p[1]
	}
	return host, ""
}

// suffix ends each DNS name.
const suffix = ".peer.ashore"

// keys begin the labels of a DNS name, in their order.
var keys = [...]string{"w--", "a--", "v--", "c--"}

// maxValue bounds a value in a DNS name, which has at most 253 characters. A longer one is cut.
const maxValue = 56

// DNS returns the name as a DNS name. Parse returns the same name, unless a value was cut.
func (n Name) DNS() string {
	labels := make([]string, len(keys))
	for i, v := range []string{n.Workload, n.Service, n.Revision, n.Cluster} {
		labels[i] = keys[i] + encode(cmp.Or(v, "unknown"))
	}
	return strings.Join(labels, ".") + suffix
}

// Parse returns the first name among DNS names, which are separated by commas.
func Parse(dns string) (Name, bool) {
	for one := range strings.SplitSeq(dns, ",") {
		if n, ok := parse(one); ok {
			return n, true
		}
	}
	return Name{}, false
}

func parse(dns string) (Name, bool) {
	text, ok := strings.CutSuffix(dns, suffix)
	labels := strings.Split(text, ".")
	if !ok || len(labels) != len(keys) {
		return Name{}, false
	}
	for i := range labels {
		value, ok := strings.CutPrefix(labels[i], keys[i])
		if labels[i] = decode(value); !ok || labels[i] == "" {
			return Name{}, false
		}
	}
	return Name{labels[0], labels[1], labels[2], labels[3]}, true
}

func plain(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// encode writes every character that a DNS label cannot have as "--" and two hexadecimal digits. A
// dash stays if a plain character follows, so that no value can look like another one.
func encode(value string) string {
	var b strings.Builder
	for i := range len(value) {
		next := string(value[i])
		if !plain(value[i]) && (value[i] != '-' || i+1 == len(value) || !plain(value[i+1])) {
			next = fmt.Sprintf("--%02x", value[i])
		}
		if b.Len()+len(next) > maxValue {
			break
		}
		b.WriteString(next)
	}
	return strings.TrimSuffix(b.String(), "-")
}

// decode is the reverse of encode; empty for what encode does not return.
func decode(text string) string {
	var b strings.Builder
	for rest := text; rest != ""; {
		hex, ok := strings.CutPrefix(rest, "--")
		if !ok {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if len(hex) < 2 {
			return ""
		}
		c, err := strconv.ParseUint(hex[:2], 16, 8)
		if err != nil {
			return ""
		}
		b.WriteByte(byte(c))
		rest = hex[2:]
	}
	if encode(b.String()) != text {
		return ""
	}
	return b.String()
}
