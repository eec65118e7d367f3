package settings

import (
	"cmp"

	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// The kinds of store.
const (
	StoreBolt   = "bolt"
	StoreConsul = "consul"
)

// Store configures where the objects of the store, tokens, the index of workloads, revocations and
// virtual IPs are kept.
type Store struct {
	// Kind is bolt (a file in the state folder, for one ashored) or consul (Consul's KV, for any
	// number of them). Default bolt.
	Kind string `yaml:"kind"`
	// Options are those of a store in Consul. Prefix may be empty: "ashore/" and the trust domain.
	consul.Options
}

func defaultStore() Store {
	return Store{Kind: StoreBolt, Options: consul.Options{Address: consulhttp.DefaultAddress}}
}

// ConsulOptions are those of a store in Consul, for a trust domain.
func (s Store) ConsulOptions(domain string) consul.Options {
	o := s.Options
	o.Prefix = cmp.Or(o.Prefix, "ashore/"+domain)
	return o
}

func (s *Config) checkStore(wrong report) {
	switch s.Store.Kind {
	case StoreConsul:
		s.Store.ConsulOptions(s.MeshConfig.Config.GetTrustDomain()).Check(func(option, format string,
			args ...any) {
			wrong("store."+option, format, args...)
		})
	case StoreBolt:
		if s.Store.Options != defaultStore().Options {
			wrong("store", "address, prefix, tokenFile and tls are only for store.kind consul, and that is %s", s.Store.Kind)
		}
	default:
		wrong("store.kind", "%q: want bolt or consul", s.Store.Kind)
	}
}

// Shared reports whether other replicas write there too.
func (s Store) Shared() bool { return s.Kind == StoreConsul }
