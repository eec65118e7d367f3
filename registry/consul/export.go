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
	// Hosts selects host names; "*" matches any text. Default: all. Except excludes host names.
	// Default: none.
	Hosts  []string `yaml:"hosts"`
	Except []string `yaml:"except"`
	// Namespaces limits the services that are registered to these namespaces of the mesh. Default:
	// all.
	Namespaces []string `yaml:"namespaces"`
	// Name is what a service is called in Consul: ${name} is the first part of its host name,
	// ${namespace} its namespace, ${host} the host name with "-" for ".". Default ${name}.
	Name string `yaml:"name"`
	// Tags are added to each entry. Default: none. Labels lists endpoint labels that become tags
	// "key=value". Default: app, version.
	Tags   []string `yaml:"tags"`
	Labels []string `yaml:"labels"`
	// Lease is the TTL of the replica's Consul session. When it expires, Consul marks its entries
	// critical; this may take up to twice the TTL. Default 30s; 10s to 24h.
	Lease time.Duration `yaml:"lease"`
}

const (
	defaultLease         = 30 * time.Second
	leastLease, maxLease = 10 * time.Second, 24 * time.Hour
	// maxOwner is the maximum length of Owner in bytes. The node name must be a DNS name.
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
