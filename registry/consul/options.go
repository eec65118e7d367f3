package consul

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
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
	// Reads is which of Consul's servers may answer: default (the leader) or stale (any). Default:
	// default.
	Reads string `yaml:"reads"`
	// Datacenters are those whose services are read; "*" means all that Consul knows. Default: the
	// agent's own.
	Datacenters []string `yaml:"datacenters"`
	// Namespaces and Partition are those of Consul Enterprise. Default: those of the token.
	Namespaces []string `yaml:"namespaces"`
	Partition  string   `yaml:"partition"`

	// Services are the names of services that are read, with "*" for any text; Except are excluded.
	// Default: all except Consul's own, consul; none.
	Services []string `yaml:"services"`
	Except   []string `yaml:"except"`
	// Tags, Metadata and NodeMetadata are what an instance must have. Default: nothing.
	Tags         []string          `yaml:"tags"`
	Metadata     map[string]string `yaml:"metadata"`
	NodeMetadata map[string]string `yaml:"nodeMetadata"`
	// Filter is a filter expression of /v1/health/service that instances must match. Default: none.
	Filter string `yaml:"filter"`
	// Exported are the owners (export.owner) of other meshes whose entries are read. Default: none.
	Exported []string `yaml:"exported"`
	// Warning is what happens to instances with a check in the state warning: serve (they get
	// traffic) or drop. Default: serve.
	Warning string `yaml:"warning"`

	// Namespace is the namespace of the services in the mesh. Default: Consul's where Namespaces
	// are set, else "default".
	Namespace string `yaml:"namespace"`
	// Domain is the suffix of host names. Default: consul.
	Domain string `yaml:"domain"`
	// Hosts is which host names services of the agent's datacenter have: short
	// (web.service.consul), datacenter (web.service.dc1.consul) or both. Other datacenters always
	// have the latter. Default: both.
	Hosts string `yaml:"hosts"`
	// ServicePort is the port of services whose metadata names none. Default 0: that of their
	// instances.
	ServicePort uint32 `yaml:"servicePort"`
	// Protocol is that of ports that declare none. Default: proxies detect it.
	Protocol string `yaml:"protocol"`
	// AddressTags are names of tagged addresses; the first that an instance or its node has is
	// used. Default: wan for other datacenters, else the instance's own address.
	AddressTags []string `yaml:"addressTags"`
	// VirtualAddresses is whether services get virtual IPs: allocated (by Ashore) or none. Default:
	// allocated.
	VirtualAddresses string `yaml:"virtualAddresses"`

	// Identity is whether metadata may set the service account and TLS mode of an instance:
	// metadata (it may) or settings (it may not). Default: metadata.
	Identity string `yaml:"identity"`
	// ServiceAccount is that of instances that declare none; ${service} in it is the name of the
	// service. Default: none.
	ServiceAccount string `yaml:"serviceAccount"`
	// TLSMode is whether instances that do not declare it accept the mesh's mutual TLS: istio or
	// disabled. Default: istio for those with a service account.
	TLSMode string `yaml:"tlsMode"`
	// Network is that of instances and nodes whose metadata names none. Default: none.
	Network string `yaml:"network"`

	// Export is which services of the mesh are registered in this Consul. Default: none.
	Export ExportOptions `yaml:"export"`
}

// TLSOptions are for https addresses.
type TLSOptions = consulhttp.TLS

// The values of options that are one of a few.
const (
	readsDefault, readsStale               = "default", "stale"
	warningServe, warningDrop              = "serve", "drop"
	hostsBoth, hostsShort, hostsDatacenter = "both", "short", "datacenter"
	identityMetadata, identitySettings     = "metadata", "settings"
	tlsModeIstio, tlsModeDisabled          = "istio", "disabled"
	virtualAllocated, virtualNone          = "allocated", "none"
)

// allDatacenters in Datacenters means all of them.
const allDatacenters = "*"

// withDefaults returns o with a value wherever there is a default.
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

// checked returns everything that is wrong with o as one error; nil: nothing.
func (o Options) checked() error {
	var errs []error
	o.Check(func(option, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", option, fmt.Sprintf(format, args...)))
	})
	return errors.Join(errs...)
}

// Allocates reports whether Ashore allocates virtual IPs for the hosts of this source.
func (o Options) Allocates() bool { return o.withDefaults().VirtualAddresses == virtualAllocated }

// Check calls wrong for everything that is wrong, with the name of the option in the settings file.
func (o Options) Check(wrong func(option, format string, args ...any)) {
	consulhttp.CheckAddress(o.Address, o.TLS, wrong)
	o.checkChoices(wrong)
	o.checkNames(wrong)
	o.checkMetadata(wrong)
	o.Export.check(o.Exported, wrong)
	if o.ServicePort > 65535 {
		wrong("servicePort", "%d: want 1 to 65535", o.ServicePort)
	}
	if _, known := registry.ParseProtocol(o.Protocol); o.Protocol != "" && !known {
		wrong("protocol", "%q: want one of Istio's, such as http, http2, grpc, tcp or tls", o.Protocol)
	}
	if account := accountOf(o.ServiceAccount, "a"); o.ServiceAccount != "" && !dnsname.Valid(account) {
		wrong("serviceAccount", "%q: want the name of a service account: lower-case letters, digits, '-' and '.', "+
			"and %s for the name of the service", o.ServiceAccount, serviceName)
	}
}

func (o Options) checkChoices(wrong func(option, format string, args ...any)) {
	for _, c := range []struct {
		option, value string
		want          []string
	}{
		{"reads", o.Reads, []string{readsDefault, readsStale}},
		{"warning", o.Warning, []string{warningServe, warningDrop}},
		{"hosts", o.Hosts, []string{hostsBoth, hostsShort, hostsDatacenter}},
		{"identity", o.Identity, []string{identityMetadata, identitySettings}},
		{"tlsMode", o.TLSMode, []string{tlsModeIstio, tlsModeDisabled}},
		{"virtualAddresses", o.VirtualAddresses, []string{virtualAllocated, virtualNone}},
	} {
		if c.value != "" && !slices.Contains(c.want, c.value) {
			wrong(c.option, "%q: want one of %s", c.value, strings.Join(c.want, ", "))
		}
	}
}

func (o Options) checkNames(wrong func(option, format string, args ...any)) {
	if o.Namespace != "" && !dnsname.ValidLabel(o.Namespace) {
		wrong("namespace", "%q: want lower-case letters, digits and '-'", o.Namespace)
	}
	if _, err := netip.ParseAddr(o.Domain); o.Domain != "" && (!dnsname.Valid(o.Domain) || err == nil) {
		wrong("domain", "%q: want a DNS name, such as consul", o.Domain)
	}
	for _, d := range o.Datacenters {
		if d == allDatacenters && len(o.Datacenters) > 1 {
			wrong("datacenters", "%q means all: write it alone", d)
		} else if d != allDatacenters && !dnsname.ValidLabel(d) {
			wrong("datacenters", "%q: want the name of a datacenter: lower-case letters, digits and '-'", d)
		}
	}
	for _, n := range o.Namespaces {
		if !dnsname.ValidLabel(n) {
			wrong("namespaces", "%q: want the name of a namespace of Consul", n)
		}
	}
	for option, patterns := range map[string][]string{"services": o.Services, "except": o.Except} {
		for _, p := range patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				wrong(option, "%q: want a name, in which * means any text", p)
			}
		}
	}
}

func (o Options) checkMetadata(wrong func(option, format string, args ...any)) {
	for option, pairs := range map[string]map[string]string{"metadata": o.Metadata, "nodeMetadata": o.NodeMetadata} {
		for k, v := range pairs {
			if !metaKey(k) {
				wrong(option, "%q: want a key of Consul's metadata: letters, digits, '-' and '_'", k)
			} else if v == "" {
				wrong(option, "%q has no value: write the value that instances must have; for an empty one use filter",
					k)
			}
		}
	}
}

// metaKey reports whether Consul accepts k as a key of metadata.
// Source: Consul, agent/structs (metaKeyFormat, metaKeyMaxLength).
func metaKey(k string) bool {
	return k != "" && len(k) <= 128 && !strings.ContainsFunc(k, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}
