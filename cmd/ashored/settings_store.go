package main

import (
	"cmp"
	"time"

	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// The kinds of store.
const (
	storeBolt   = "bolt"
	storeConsul = "consul"
)

// storeSettings say where what is written to the mesh is kept: objects of the store, tokens, the ledger of workloads, revocations,
// virtual addresses.
type storeSettings struct {
	// Kind is bolt (a file in the state folder, for one ashored) or consul (Consul's KV, for any number of them). Default bolt.
	Kind string `yaml:"kind"`
	// Address is that of Consul's HTTP interface. Default http://127.0.0.1:8500.
	Address string `yaml:"address"`
	// Prefix is below which keys the store is: all ashored of one mesh have the same. Default: "ashore/" and the trust domain.
	Prefix string `yaml:"prefix"`
	// TokenFile has the ACL token. Default: none.
	TokenFile string `yaml:"tokenFile"`
	// TLS is for an https address.
	TLS consulhttp.TLS `yaml:"tls"`
	// Datacenter is the one whose KV it is. Default: that of the agent.
	Datacenter string `yaml:"datacenter"`
	// Namespace and Partition are those of Consul Enterprise. Default: those of the token.
	Namespace string `yaml:"namespace"`
	Partition string `yaml:"partition"`
	// MaxAge is how old this ashored's copy of it may be to stand in at a start while Consul is away. Default 0: any age.
	MaxAge time.Duration `yaml:"maxAge"`
}

func defaultStore() storeSettings {
	return storeSettings{Kind: storeBolt, Address: consulhttp.DefaultAddress}
}

// options are those of a store in Consul, for a trust domain.
func (s storeSettings) options(domain string) consul.Options {
	return consul.Options{Address: s.Address, Prefix: cmp.Or(s.Prefix, "ashore/"+domain), TokenFile: s.TokenFile, TLS: s.TLS,
		Datacenter: s.Datacenter, Namespace: s.Namespace, Partition: s.Partition, MaxAge: s.MaxAge}
}

func (s *settings) checkStore(wrong func(setting, format string, args ...any)) {
	switch s.Store.Kind {
	case storeConsul:
		s.Store.options(s.mesh.Config.GetTrustDomain()).Check(func(option, format string, args ...any) { wrong("store."+option, format, args...) })
		if age := s.Store.MaxAge; age > 0 && age < leastAge {
			wrong("store.maxAge", "%v: want 1m or more, or 0s for any age: how long the store was in touch is written down each minute", age)
		}
	case storeBolt:
		alone := defaultStore()
		for _, o := range []struct {
			name  string
			other bool
		}{
			{"address", s.Store.Address != alone.Address}, {"prefix", s.Store.Prefix != ""}, {"tokenFile", s.Store.TokenFile != ""}, {"tls", s.Store.TLS != alone.TLS},
			{"datacenter", s.Store.Datacenter != ""}, {"namespace", s.Store.Namespace != ""}, {"partition", s.Store.Partition != ""}, {"maxAge", s.Store.MaxAge != 0},
		} {
			if o.other {
				wrong("store."+o.name, "is only for store.kind consul, and that is %s", s.Store.Kind)
			}
		}
	default:
		wrong("store.kind", "%q: want bolt or consul", s.Store.Kind)
	}
}

// shared says that other replicas write there too.
func (s storeSettings) shared() bool { return s.Kind == storeConsul }
