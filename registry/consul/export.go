package consul

import (
	"cmp"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// ExportOptions select the services of the mesh that are registered in Consul, for clients outside
// the mesh.
type ExportOptions struct {
	// Owner names the mesh that the entries belong to. All replicas of one mesh have the same
	// owner, and two meshes never do. It is part of the names of the nodes, and is in the metadata
	// of each entry. Default: none, and nothing is registered.
	Owner string `yaml:"owner"`
	// Hosts are the host names that are registered, and Except those that are not; "*" stands for
	// any text. Default: all, none.
	Hosts  []string `yaml:"hosts"`
	Except []string `yaml:"except"`
	// Namespaces limits the services that are registered to these namespaces of the mesh. Default:
	// all.
	Namespaces []string `yaml:"namespaces"`
	// Name is what a service is called in Consul: ${name} is the first part of its host name,
	// ${namespace} its namespace, ${host} the host name with "-" for ".". Default ${name}.
	Name string `yaml:"name"`
	// Tags are set on each entry. Labels are the keys of endpoint labels that become a tag
	// "key=value" as well. Default: none; app and version.
	Tags   []string `yaml:"tags"`
	Labels []string `yaml:"labels"`
	// Lease is how long entries are valid after the replica that registered them stopped: then
	// Consul turns them critical. Consul may take up to twice as long. Default 30s, 10s to 24h.
	Lease time.Duration `yaml:"lease"`
}

const (
	defaultLease         = 30 * time.Second
	leastLease, maxLease = 10 * time.Second, 24 * time.Hour
	// maxOwner leaves room for the prefix and the replica in a DNS name, in bytes.
	maxOwner = 50
	// nodePrefix begins the names of nodes that entries belong to.
	nodePrefix = "ashore-"
)

// on reports whether anything is registered.
func (x ExportOptions) on() bool { return x.Owner != "" }

// node returns the name of the Consul node of a replica: ashore-OWNER-REPLICA.
func (x ExportOptions) node(replica string) string { return nodePrefix + x.Owner + "-" + replica }

func (x ExportOptions) withDefaults() ExportOptions {
	x.Name, x.Lease = cmp.Or(x.Name, "${name}"), cmp.Or(x.Lease, defaultLease)
	if x.Labels == nil {
		x.Labels = []string{"app", "version"}
	}
	return x
}

// exportName returns the name of a service in Consul.
func exportName(template string, k registry.Key) string {
	first, _, _ := strings.Cut(k.Host, ".")
	r := strings.NewReplacer("${name}", first, "${namespace}", k.Namespace, "${host}",
		strings.ReplaceAll(k.Host, ".", "-"))
	return strings.ToLower(r.Replace(template))
}
