package consul

import (
	"hash/fnv"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

// ExportOptions say which services of the mesh are registered in Consul, so that what is outside the mesh finds them there.
type ExportOptions struct {
	// Owner is whose the entries are: all replicas of one mesh have the same, two meshes never do. It names the node that
	// entries stand on, "ashore-OWNER", and stands in the metadata of each. Default: none, and nothing is registered.
	Owner string `yaml:"owner"`
	// Hosts are the host names that are registered, in which "*" stands for any text, and Except those that are not.
	// Default: all, none.
	Hosts  []string `yaml:"hosts"`
	Except []string `yaml:"except"`
	// Namespaces are those of the mesh whose services are registered. Default: all.
	Namespaces []string `yaml:"namespaces"`
	// Name is what a service is called in Consul: ${name} is the first part of its host name, ${namespace} its namespace,
	// ${host} the host name with "-" for ".". Default ${name}.
	Name string `yaml:"name"`
	// Tags are on each entry, before those that labels make: Labels are the keys of those labels of an endpoint that become a
	// tag "key=value". Default: none; app and version.
	Tags   []string `yaml:"tags"`
	Labels []string `yaml:"labels"`
	// Lease is for how long entries count if nothing is heard of who registered them. Consul may take up to twice as long.
	// Default 30s, 10s to 24h.
	Lease time.Duration `yaml:"lease"`
	// Nodes is how many nodes entries stand on: what a write costs Consul grows with how many stand on its node. Default 1, at
	// most 64; one for each 1,000 entries.
	Nodes int `yaml:"nodes"`
	// Remove has nothing registered, and what the owner has in Consul removed.
	Remove bool `yaml:"remove"`
}

const (
	defaultLease         = 30 * time.Second
	leastLease, maxLease = 10 * time.Second, 24 * time.Hour
	// maxOwner leaves room for the prefix in a name of DNS, in bytes.
	maxOwner = 50
	maxNodes = 64
	// nodePrefix begins the names of nodes that entries stand on, leasePrefix those of keys that leases stand at.
	nodePrefix, leasePrefix = "ashore-", "ashore-export/"
)

// on says that there is something to do.
func (x ExportOptions) on() bool { return x.Owner != "" }

// node is the name of a node that entries stand on: ashore-OWNER, ashore-OWNER--1, …
func (x ExportOptions) node(number int) string { return nodePrefix + x.Owner + suffix(number) }

// lease is the key that is held by who registers on a node.
func (x ExportOptions) lease(number int) string { return leasePrefix + x.Owner + suffix(number) }

func suffix(number int) string {
	if number == 0 {
		return ""
	}
	return "--" + strconv.Itoa(number)
}

// at is the number of the node that the entries of a name stand on.
func (x ExportOptions) at(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(max(1, x.Nodes)))
}

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
	if x.Nodes == 0 {
		x.Nodes = 1
	}
	return x
}

// check tells what is wrong; exported are the owners whose entries the source reads.
func (x ExportOptions) check(exported []string, wrong func(option, format string, args ...any)) {
	for _, o := range exported {
		if !dnsname.ValidLabel(o) {
			wrong("exported", "%q: want the owner of entries: small letters, digits and '-'", o)
		}
	}
	if x.Owner == "" {
		if len(x.Hosts)+len(x.Except)+len(x.Namespaces)+len(x.Tags)+len(x.Labels) > 0 || x.Name != "" || x.Lease != 0 || x.Nodes != 0 || x.Remove {
			wrong("export.owner", "none: name the owner of the entries; all replicas of one mesh have the same, two meshes never do")
		}
		return
	}
	if !dnsname.ValidLabel(x.Owner) || len(x.Owner) > maxOwner {
		wrong("export.owner", "%q: want at most %d small letters, digits and '-'", x.Owner, maxOwner)
	}
	if slices.Contains(exported, x.Owner) {
		wrong("exported", "%q is export.owner too: the mesh's own services would come back to it", x.Owner)
	}
	if x.Lease != 0 && (x.Lease < leastLease || x.Lease > maxLease) {
		wrong("export.lease", "%s: want %s to %s", x.Lease, leastLease, maxLease)
	}
	if x.Nodes < 0 || x.Nodes > maxNodes {
		wrong("export.nodes", "%d: want 1 to %d", x.Nodes, maxNodes)
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
	if name := exportName(x.Name, registry.Key{Host: "web.example", Namespace: "shop"}); x.Name != "" && !dnsname.ValidLabel(name) {
		wrong("export.name", "%q: web.example would be called %q; want letters, digits and '-', and ${name}, ${namespace}, ${host} among them", x.Name, name)
	}
}

// exportName is what a service is called in Consul.
func exportName(template string, k registry.Key) string {
	first, _, _ := strings.Cut(k.Host, ".")
	return strings.ToLower(strings.NewReplacer("${name}", first, "${namespace}", k.Namespace, "${host}", strings.ReplaceAll(k.Host, ".", "-")).Replace(template))
}

// chosen says whether the settings name a service as one to register.
func (x ExportOptions) chosen(k registry.Key) bool {
	switch {
	case len(x.Hosts) > 0 && !matches(x.Hosts, k.Host), matches(x.Except, k.Host):
		return false
	}
	return len(x.Namespaces) == 0 || slices.Contains(x.Namespaces, k.Namespace)
}
