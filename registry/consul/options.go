package consul

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

// Config says which Consul a Source asks, and for what.
type Config struct {
	// Name tells sources of this kind apart; the source is called "consul:" and this. Required.
	Name string
	// Options are those that operators set.
	Options Options
	// Log is told of what an operator would act on; required.
	Log hclog.Logger
}

// Options are what operators set of a source of the kind consul. The zero value asks the agent of this machine for all
// services of its datacenter.
type Options struct {
	// Address is that of Consul's HTTP interface: "http://…", "https://…" or "unix:///…". Default http://127.0.0.1:8500.
	Address string `yaml:"address"`
	// TokenFile has the ACL token, and is read anew for each request. Default: none, which asks as Consul's anonymous token.
	TokenFile string `yaml:"tokenFile"`
	// TLS is how an https address is verified, and how this side shows who it is.
	TLS TLSOptions `yaml:"tls"`
	// Connections is how many connections to Consul there are at most. Consul allows 200 to one client address by default,
	// which all programs of this machine share. Default 100, least 8.
	Connections int `yaml:"connections"`
	// Reads is which of Consul's servers may answer: default (the leader), stale (any of them), consistent (the leader, after it
	// made sure that it is) or cached (the agent from its memory). Default: default.
	Reads string `yaml:"reads"`
	// Datacenters are those whose services count; "*" stands for all that Consul knows. Default: that of the agent.
	Datacenters []string `yaml:"datacenters"`
	// Namespaces and Partition are those of Consul Enterprise. Default: none is named, which means those of the token.
	Namespaces []string `yaml:"namespaces"`
	Partition  string   `yaml:"partition"`

	// Services are the names of those that count, in which "*" stands for any text; Except are names of those that do not.
	// Default: all, none.
	Services []string `yaml:"services"`
	Except   []string `yaml:"except"`
	// Tags are those that an instance must have to count, Metadata what its metadata must say, NodeMetadata that of its node.
	Tags         []string          `yaml:"tags"`
	Metadata     map[string]string `yaml:"metadata"`
	NodeMetadata map[string]string `yaml:"nodeMetadata"`
	// Filter is an expression of Consul's for instances, as /v1/health/service takes it; those for which it is false do not count.
	Filter string `yaml:"filter"`
	// ConsulService has Consul's own service, "consul", count too.
	ConsulService bool `yaml:"consulService"`
	// Exported are the owners (export.owner) of entries of other meshes that count. Default: none, so that what meshes have
	// registered in Consul is no service of this one's.
	Exported []string `yaml:"exported"`
	// Emptied says what is made of a Consul that comes back without services that it had: keep (they stay as they were until they
	// are registered again, and are told to be missing) or believe (they are gone). Default keep.
	Emptied string `yaml:"emptied"`
	// Warning says what happens to instances with a check that warns: serve (they are sent traffic) or drop. Default serve.
	Warning string `yaml:"warning"`

	// Namespace is the one of the mesh that services are in. Default: Consul's where Namespaces are named, else "default".
	Namespace string `yaml:"namespace"`
	// Domain ends the names of hosts. Default consul, as Consul's own.
	Domain string `yaml:"domain"`
	// Hosts says how services of the agent's datacenter are called: short (web.service.consul), datacenter
	// (web.service.dc1.consul) or both. Those of other datacenters are called by the latter alone. Default both.
	Hosts string `yaml:"hosts"`
	// ServicePort is the port at which clients reach services that name none in their metadata. Default 0: that of their instances.
	ServicePort uint32 `yaml:"servicePort"`
	// Protocol is what ports speak that do not say. Default: proxies find out.
	Protocol string `yaml:"protocol"`
	// AddressTags are names of tagged addresses; the first that an instance or its node has is its address. Default: wan for
	// other datacenters, else the instance's own.
	AddressTags []string `yaml:"addressTags"`
	// VirtualAddresses says which ones services have: allocated (Ashore gives each host one of its own), consul (those that
	// Consul gave), or none. Default allocated.
	VirtualAddresses string `yaml:"virtualAddresses"`

	// Identity says whether metadata may tell who an instance is: metadata (it may), or settings. Default metadata.
	Identity string `yaml:"identity"`
	// ServiceAccount is that of instances which tell none; in it, ${service} stands for the service's name. Default: none.
	ServiceAccount string `yaml:"serviceAccount"`
	// TLSMode says of instances that do not tell whether they take the mesh's mutual TLS: istio (they do), disabled. Default: those
	// with a service account do.
	TLSMode string `yaml:"tlsMode"`
	// Network is that of instances and nodes whose metadata names none. Default: none.
	Network string `yaml:"network"`
	// RegionKey, ZoneKey and SubZoneKey are keys of nodes' metadata that say where a node is. Default: the region is the datacenter,
	// zone, subzone.
	RegionKey  string `yaml:"regionKey"`
	ZoneKey    string `yaml:"zoneKey"`
	SubZoneKey string `yaml:"subZoneKey"`

	// Export says which services of the mesh are registered in this Consul. Default: none.
	Export ExportOptions `yaml:"export"`
}

// TLSOptions are for https addresses.
type TLSOptions = consulhttp.TLS

// late says that answers may be from before what others have told of.
func (o *Options) late() bool { return o.Reads == readsStale || o.Reads == readsCached }

// The values of options that are one of a few.
const (
	readsDefault, readsStale, readsConsistent, readsCached = "default", "stale", "consistent", "cached"
	emptiedKeep, emptiedBelieve                            = "keep", "believe"
	warningServe, warningDrop                              = "serve", "drop"
	hostsBoth, hostsShort, hostsDatacenter                 = "both", "short", "datacenter"
	identityMetadata, identitySettings                     = "metadata", "settings"
	tlsModeIstio, tlsModeDisabled                          = "istio", "disabled"
	virtualAllocated, virtualConsul, virtualNone           = "allocated", "consul", "none"
)

const (
	defaultConnections = 100
	// leastConnections leaves room for what is asked besides single services.
	leastConnections = 8
	// allDatacenters among Datacenters stands for all of them.
	allDatacenters = "*"
)

// withDefaults has a value wherever there is a default.
func (o Options) withDefaults() Options {
	for field, value := range map[*string]string{
		&o.Address: consulhttp.DefaultAddress, &o.Reads: readsDefault, &o.Warning: warningServe, &o.Emptied: emptiedKeep, &o.Domain: "consul", &o.Hosts: hostsBoth,
		&o.Identity: identityMetadata, &o.VirtualAddresses: virtualAllocated, &o.ZoneKey: "zone", &o.SubZoneKey: "subzone",
	} {
		if *field == "" {
			*field = value
		}
	}
	if o.Namespace == "" && len(o.Namespaces) == 0 {
		o.Namespace = "default"
	}
	if o.Connections == 0 {
		o.Connections = defaultConnections
	}
	o.Export = o.Export.withDefaults()
	return o
}

// checked is all that is wrong with options; nil: nothing.
func (o Options) checked() error {
	var errs []error
	o.Check(func(option, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", option, fmt.Sprintf(format, args...)))
	})
	return errors.Join(errs...)
}

// Allocates says that hosts are to be given virtual addresses.
func (o Options) Allocates() bool { return o.withDefaults().VirtualAddresses == virtualAllocated }

// Check tells what is wrong with options, by their names among the settings.
func (o Options) Check(wrong func(option, format string, args ...any)) {
	consulhttp.CheckAddress(o.Address, o.TLS, wrong)
	o.checkChoices(wrong)
	o.checkNames(wrong)
	o.Export.check(o.Exported, wrong)
	if o.Connections != 0 && o.Connections < leastConnections {
		wrong("connections", "%d: want at least %d", o.Connections, leastConnections)
	}
	if o.ServicePort > 65535 {
		wrong("servicePort", "%d: want 1 to 65535", o.ServicePort)
	}
	if _, known := registry.ParseProtocol(o.Protocol); o.Protocol != "" && !known {
		wrong("protocol", "%q: want one of Istio's, as http, http2, grpc, tcp, tls", o.Protocol)
	}
	if a := accountOf(o.ServiceAccount, "a"); o.ServiceAccount != "" && !dnsname.Valid(a) {
		wrong("serviceAccount", "%q: want the name of a service account: small letters, digits, '-' and '.', and %s for the service's name", o.ServiceAccount, serviceName)
	}
	for _, list := range []struct {
		option   string
		patterns []string
	}{{"services", o.Services}, {"except", o.Except}} {
		for _, p := range list.patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				wrong(list.option, "%q: want a name, in which * stands for any text", p)
			}
		}
	}
}

func (o Options) checkChoices(wrong func(option, format string, args ...any)) {
	for _, c := range []struct {
		option, value string
		want          []string
	}{
		{"reads", o.Reads, []string{readsDefault, readsStale, readsConsistent, readsCached}},
		{"emptied", o.Emptied, []string{emptiedKeep, emptiedBelieve}},
		{"warning", o.Warning, []string{warningServe, warningDrop}},
		{"hosts", o.Hosts, []string{hostsBoth, hostsShort, hostsDatacenter}},
		{"identity", o.Identity, []string{identityMetadata, identitySettings}},
		{"tlsMode", o.TLSMode, []string{tlsModeIstio, tlsModeDisabled}},
		{"virtualAddresses", o.VirtualAddresses, []string{virtualAllocated, virtualConsul, virtualNone}},
	} {
		if c.value != "" && !slices.Contains(c.want, c.value) {
			wrong(c.option, "%q: want one of %s", c.value, strings.Join(c.want, ", "))
		}
	}
}

func (o Options) checkNames(wrong func(option, format string, args ...any)) {
	if o.Namespace != "" && !dnsname.ValidLabel(o.Namespace) {
		wrong("namespace", "%q: want small letters, digits and '-'", o.Namespace)
	}
	if _, err := netip.ParseAddr(o.Domain); o.Domain != "" && (!dnsname.Valid(o.Domain) || err == nil) {
		wrong("domain", "%q: want a name of DNS, as consul", o.Domain)
	}
	for _, d := range o.Datacenters {
		if d == allDatacenters && len(o.Datacenters) > 1 {
			wrong("datacenters", "%q stands for all: name it alone", d)
		} else if d != allDatacenters && !dnsname.ValidLabel(d) {
			wrong("datacenters", "%q: want the name of a datacenter: small letters, digits and '-'", d)
		}
	}
	for _, n := range o.Namespaces {
		if !dnsname.ValidLabel(n) {
			wrong("namespaces", "%q: want the name of a namespace of Consul", n)
		}
	}
	for _, keys := range []struct {
		option string
		pairs  map[string]string
	}{{"metadata", o.Metadata}, {"nodeMetadata", o.NodeMetadata}} {
		for k := range keys.pairs {
			if !metaKey(k) {
				wrong(keys.option, "%q: want a key of Consul's metadata: letters, digits, '-' and '_'", k)
			} else if keys.pairs[k] == "" {
				wrong(keys.option, "%q has no value: want what it must say; for one that says nothing write a filter", k)
			}
		}
	}
}

// metaKey says whether Consul would take k as a key of metadata.
// Source: Consul, agent/structs (metaKeyFormat, metaKeyMaxLength).
func metaKey(k string) bool {
	ok := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	return k != "" && len(k) <= 128 && strings.IndexFunc(k, func(c rune) bool { return !ok(c) }) < 0
}
