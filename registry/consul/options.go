package consul

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

// Options are the settings of a source of the kind consul. The zero value reads all services of the
// datacenter of the local agent.
type Options struct {
	// Address is Consul's HTTP interface: "http://…", "https://…" or "unix:///…". Default
	// http://127.0.0.1:8500.
	Address string `yaml:"address"`
	// TokenFile holds the ACL token. It is read for each request. Default: none, which is Consul's
	// anonymous token.
	TokenFile string `yaml:"tokenFile"`
	// TLS is for https addresses.
	TLS TLSOptions `yaml:"tls"`
	// Reads is the consistency mode: default (the leader answers) or stale (any server).
	Reads string `yaml:"reads"`
	// Datacenters lists the datacenters to read; "*" selects all. Default: the agent's datacenter.
	Datacenters []string `yaml:"datacenters"`
	// Namespaces and Partition select Consul Enterprise namespaces and a partition. Default: the
	// token's.
	Namespaces []string `yaml:"namespaces"`
	Partition  string   `yaml:"partition"`

	// Services selects services by name; "*" matches any text. Default: all except "consul". Except
	// excludes services by name. Default: none.
	Services []string `yaml:"services"`
	Except   []string `yaml:"except"`
	// An instance must have all of Tags, Metadata and NodeMetadata. Default: no condition.
	Tags         []string          `yaml:"tags"`
	Metadata     map[string]string `yaml:"metadata"`
	NodeMetadata map[string]string `yaml:"nodeMetadata"`
	// Filter is a filter expression of /v1/health/service that instances must match. Default: none.
	Filter string `yaml:"filter"`
	// Exported lists other meshes, by their export.owner, whose exported services are read.
	// Default: none.
	Exported []string `yaml:"exported"`
	// Warning says whether instances in state warning get traffic: serve or drop. Default: serve.
	Warning string `yaml:"warning"`

	// Namespace is the mesh namespace of the services. Default: the Consul namespace if Namespaces
	// is set, else "default".
	Namespace string `yaml:"namespace"`
	// Domain is the suffix of host names. Default: consul.
	Domain string `yaml:"domain"`
	// Hosts is which host names services of the agent's datacenter have: short
	// (web.service.consul), datacenter (web.service.dc1.consul) or both. Services of other
	// datacenters always have the datacenter form.
	Hosts string `yaml:"hosts"`
	// ServicePort is the port of services without ashore-port metadata. Default 0: the port of the
	// instances.
	ServicePort uint32 `yaml:"servicePort"`
	// Protocol is the protocol of ports that declare none. Default: proxies detect it.
	Protocol string `yaml:"protocol"`
	// AddressTags lists tagged addresses in order of preference; the first present is used.
	// Default: wan for other datacenters, else the instance's own address.
	AddressTags []string `yaml:"addressTags"`
	// VirtualAddresses is whether services get virtual IPs: allocated (by Ashore) or none. Default:
	// allocated.
	VirtualAddresses string `yaml:"virtualAddresses"`

	// Identity says where the service account and TLS mode come from: metadata (then settings) or
	// settings only. Default: metadata.
	Identity string `yaml:"identity"`
	// ServiceAccount is the default service account; ${service} expands to the service name.
	// Default: none.
	ServiceAccount string `yaml:"serviceAccount"`
	// Network is the default network of instances. Default: none.
	Network string `yaml:"network"`

	// Export selects mesh services to register in this Consul. Default: none.
	Export ExportOptions `yaml:"export"`
}

// TLSOptions are for https addresses.
type TLSOptions = consulhttp.TLS

// Allowed values of enumerated options.
const (
	readsDefault, readsStale               = "default", "stale"
	warningServe, warningDrop              = "serve", "drop"
	hostsBoth, hostsShort, hostsDatacenter = "both", "short", "datacenter"
	identityMetadata, identitySettings     = "metadata", "settings"
	tlsModeIstio, tlsModeDisabled          = registry.TLSModeIstio, "disabled"
	virtualAllocated, virtualNone          = "allocated", "none"
)

// allDatacenters in Datacenters means all of them.
const allDatacenters = "*"

// withDefaults fills in defaults.
func (o Options) withDefaults() Options {
	for field, value := range map[*string]string{
		&o.Address: consulhttp.DefaultAddress, &o.Reads: readsDefault, &o.Warning: warningServe, &o.Domain: "consul",
		&o.Hosts: hostsBoth, &o.Identity: identityMetadata, &o.VirtualAddresses: virtualAllocated,
	} {
		if *field == "" {
			*field = value
		}
	}
	if o.Namespace == "" && len(o.Namespaces) == 0 {
		o.Namespace = "default"
	}
	o.Export = o.Export.withDefaults()
	return o
}

// Allocates reports whether Ashore allocates virtual IPs for the hosts of this source.
func (o Options) Allocates() bool { return o.withDefaults().VirtualAddresses == virtualAllocated }

// Check calls wrong for everything that is wrong, with the name of the option in the settings file.
func (o Options) Check(wrong func(option, format string, args ...any)) {
	consulhttp.CheckAddress(o.Address, o.TLS, wrong)
	check := func(option, want string, ok func(string) bool, values ...string) {
		for _, v := range values {
			if v != "" && !ok(v) {
				wrong(option, "%q: want %s", v, want)
			}
		}
	}
	choice := func(option, value string, of ...string) {
		check(option, "one of "+strings.Join(of, ", "), func(v string) bool { return slices.Contains(of, v) }, value)
	}
	choice("reads", o.Reads, readsDefault, readsStale)
	choice("warning", o.Warning, warningServe, warningDrop)
	choice("hosts", o.Hosts, hostsBoth, hostsShort, hostsDatacenter)
	choice("identity", o.Identity, identityMetadata, identitySettings)
	choice("virtualAddresses", o.VirtualAddresses, virtualAllocated, virtualNone)

	const label = "lower-case letters, digits and '-'"
	check("namespace", label, dnsname.ValidLabel, o.Namespace)
	check("namespaces", label, dnsname.ValidLabel, o.Namespaces...)
	check("datacenters", label+", or * alone for all", func(d string) bool {
		return dnsname.ValidLabel(d) || d == allDatacenters && len(o.Datacenters) == 1
	}, o.Datacenters...)
	check("domain", "a DNS name, such as consul", func(d string) bool {
		_, err := netip.ParseAddr(d)
		return dnsname.Valid(d) && err != nil
	}, o.Domain)
	check("services", wantPattern, isPattern, o.Services...)
	check("except", wantPattern, isPattern, o.Except...)
	for option, pairs := range map[string]map[string]string{"metadata": o.Metadata, "nodeMetadata": o.NodeMetadata} {
		check(option, "a key of letters, digits, '-' and '_' with a value; for an empty value use filter",
			func(k string) bool { return metaKey(k) && pairs[k] != "" }, slices.Collect(maps.Keys(pairs))...)
	}
	check("protocol", "one of Istio's, such as http, http2, grpc, tcp or tls", func(p string) bool {
		_, known := registry.ParseProtocol(p)
		return known
	}, o.Protocol)
	account := "the name of a service account: " + label + " and '.', and " + serviceName + " for the name of the service"
	check("serviceAccount", account, func(a string) bool { return dnsname.Valid(accountOf(a, "a")) },
		o.ServiceAccount)
	if o.ServicePort > 65535 {
		wrong("servicePort", "%d: want 1 to 65535", o.ServicePort)
	}
	check("exported", label+", and not export.owner: the mesh would read its own services", func(owner string) bool {
		return dnsname.ValidLabel(owner) && owner != o.Export.Owner
	}, o.Exported...)

	x := o.Export
	if x.Owner == "" && !reflect.ValueOf(x).IsZero() {
		wrong("export.owner", "missing: name the owner of the entries; all replicas of one mesh have the same owner, "+
			"two meshes never do")
	}
	check("export.owner", fmt.Sprintf("at most %d %s", maxOwner, label), func(owner string) bool {
		return dnsname.ValidLabel(owner) && len(owner) <= maxOwner
	}, x.Owner)
	check("export.hosts", wantPattern, isPattern, x.Hosts...)
	check("export.except", wantPattern, isPattern, x.Except...)
	check("export.name", label+", and ${name}, ${namespace}, ${host} among them", func(name string) bool {
		return dnsname.ValidLabel(exportName(name, registry.Key{Host: "web.example", Namespace: "shop"}))
	}, x.Name)
	if x.Lease != 0 && (x.Lease < leastLease || x.Lease > maxLease) {
		wrong("export.lease", "%s: want %s to %s", x.Lease, leastLease, maxLease)
	}
}

// wantPattern describes what isPattern accepts.
const wantPattern = "a name, in which * means any text"

func isPattern(p string) bool {
	_, err := path.Match(p, "")
	return err == nil
}

// metaKey reports whether Consul accepts k as a key of metadata.
// Source: Consul, agent/structs (metaKeyFormat, metaKeyMaxLength).
func metaKey(k string) bool {
	return k != "" && len(k) <= 128 && !strings.ContainsFunc(k, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}
