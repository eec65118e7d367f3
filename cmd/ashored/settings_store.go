package main

import (
	"cmp"

	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// The kinds of store.
const (
	storeBolt   = "bolt"
	storeConsul = "consul"
)

// storeSettings say where the objects of the store, tokens, the ledger of workloads, revocations
// and virtual IPs are kept.
type storeSettings struct {
	// Kind is bolt (a file in the state folder, for one ashored) or consul (Consul's KV, for any
	// number of them). Default bolt.
	Kind string `yaml:"kind"`
	// Options are those of a store in Consul. Prefix may be empty: "ashore/" and the trust domain.
	consul.Options
}

func defaultStore() storeSettings {
	return storeSettings{Kind: storeBolt, Options: consul.Options{Address: consulhttp.DefaultAddress}}
}

// options are those of a store in Consul, for a trust domain.
func (s storeSettings) options(domain string) consul.Options {
	o := s.Options
	o.Prefix = cmp.Or(o.Prefix, "ashore/"+domain)
	return o
}

func (s *settings) checkStore(wrong func(setting, format string, args ...any)) {
	switch s.Store.Kind {
	case storeConsul:
		s.Store.options(s.mesh.Config.GetTrustDomain()).Check(func(option, format string,
			args ...any) {
			wrong("store."+option, format, args...)
		})
		if age := s.Store.MaxAge; age > 0 && age < leastAge {
			wrong("store.maxAge", "%v: want 1m or more, or 0s for any age: how long the store was in touch is written down each minute", age)
		}
	case storeBolt:
		alone := defaultStore()
		for _, o := range []struct {
			name  string
			other bool
		}{
			{"address", s.Store.Address != alone.Address}, {"prefix", s.Store.Prefix != ""}, {"tokenFile",
				s.Store.TokenFile != ""}, {"tls", s.Store.TLS != alone.TLS},
			{"datacenter", s.Store.Datacenter != ""}, {"namespace", s.Store.Namespace != ""}, {"partition",
				s.Store.Partition != ""}, {"maxAge", s.Store.MaxAge != 0},
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

// lost is what is lost with the file in the state folder, for package bolt; empty: all that is
// written to the mesh.
func (s storeSettings) lost() string {
	if !s.shared() {
		return ""
	}
	return "what was active before the restart is lost, and this replica's copy of the store in Consul (setting store), which it reads there again: that start needs Consul. " +
		"Objects and their history, virtual IPs, the ledger of workloads, join tokens and revocations are in Consul; a revocation that it does not have yet is read from ca/revocations.json in the state folder"
}
