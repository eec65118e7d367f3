package consul

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
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
	if x.Name == "" {
		x.Name = "${name}"
	}
	if x.Labels == nil {
		x.Labels = []string{"app", "version"}
	}
	if x.Lease == 0 {
		x.Lease = defaultLease
	}
	return x
}

// check reports what is wrong. exported are the owners whose entries the source reads.
func (x ExportOptions) check(exported []string, wrong func(option, format string, args ...any)) {
	for _, o := range exported {
		if !dnsname.ValidLabel(o) {
			wrong("exported", "%q: want the owner of entries: small letters, digits and '-'", o)
		}
	}
	if x.Owner == "" {
		if len(x.Hosts)+len(x.Except)+len(x.Namespaces)+len(x.Tags)+len(x.Labels) > 0 || x.Name != "" || x.Lease != 0 {
			wrong("export.owner", "missing: name the owner of the entries; all replicas of one mesh have the same owner, "+
				"two meshes never do")
		}
		return
	}
	if !dnsname.ValidLabel(x.Owner) || len(x.Owner) > maxOwner {
		wrong("export.owner", "%q: want at most %d small letters, digits and '-'", x.Owner, maxOwner)
	}
	if slices.Contains(exported, x.Owner) {
		wrong("exported", "%q is export.owner too: the mesh would read its own services", x.Owner)
	}
	if x.Lease != 0 && (x.Lease < leastLease || x.Lease > maxLease) {
		wrong("export.lease", "%s: want %s to %s", x.Lease, leastLease, maxLease)
	}
	for _, list := range []struct {
		option   string
		patterns []string
	}{{"export.hosts", x.Hosts}, {"export.except", x.Except}} {
		for _, p := range list.patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				wrong(list.option, "%q: want a host name, in which * stands for any text", p)
			}
		}
	}
	name := exportName(x.Name, registry.Key{Host: "web.example", Namespace: "shop"})
	if x.Name != "" && !dnsname.ValidLabel(name) {
		wrong("export.name", "%q: web.example would be called %q; want letters, digits and '-', and ${name}, ${namespace}, "+
			"${host} among them", x.Name, name)
	}
}

// exportName returns the name of a service in Consul.
func exportName(template string, k registry.Key) string {
	first, _, _ := strings.Cut(k.Host, ".")
	r := strings.NewReplacer("${name}", first, "${namespace}", k.Namespace, "${host}",
		strings.ReplaceAll(k.Host, ".", "-"))
	return strings.ToLower(r.Replace(template))
}

// chosen reports whether the options select a service.
func (x ExportOptions) chosen(k registry.Key) bool {
	if len(x.Hosts) > 0 && !matches(x.Hosts, k.Host) || matches(x.Except, k.Host) {
		return false
	}
	return len(x.Namespaces) == 0 || slices.Contains(x.Namespaces, k.Namespace)
}
