package push

import (
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Objects holds all configuration objects by key.
type Objects = pmap.Map[config.Key, *config.Object]

// Services holds all services by key.
type Services = pmap.Map[registry.Key, *registry.Service]

// Endpoints holds the endpoints of all services by key.
type Endpoints = pmap.Map[registry.Key, *registry.EndpointList]

// Inputs holds everything that a Context depends on. Comparable.
type Inputs struct {
	// Mesh holds the mesh-wide settings. It is never nil.
	Mesh *Mesh
	// Objects holds the active configuration objects.
	Objects Objects
	// Services and Endpoints are joined from all sources. Services have their allocated virtual
	// IPs.
	Services  Services
	Endpoints Endpoints
	// Trust holds the trusted roots and the revocations. Nil if there is no certificate authority.
	Trust *Trust
	// Keys holds the public keys of token issuers. Nil if none were fetched.
	Keys *KeySets
}

// Context is the whole mesh at one moment: the inputs, and indexes over them. Immutable; safe for
// concurrent use.
type Context struct {
	in     Inputs
	tables *tables

	virtual   virtualServices
	rules     rules
	sidecars  sidecars
	gateways  gateways
	workloads workloadIndex
	entries   workloadEntries

	peers, requests, authorization policies
	identities                     identities

	cache    *contextCache // results that were computed from the above on demand
	previous *contextCache // cache of the last context that computed results; keeps them in the memos
}

// Build returns the context of in. The result equals Build(nil, in). It shares what did not change
// with prev, which may be nil, and so its cost grows with the changes only.
func Build(prev *Context, in Inputs) *Context {
	if prev == nil || prev.in.Mesh.Domain != in.Mesh.Domain {
		prev = &Context{tables: newTables()}
	}
	c := *prev
	c.in = in
	for ch := range in.Objects.Diff(prev.in.Objects) {
		c.index(ch)
	}
	for ch := range in.Endpoints.Diff(prev.in.Endpoints) {
		c.workloads = c.workloads.with(c.tables, ch)
		c.identities = c.identities.with(c.tables, ch)
	}
	if prev.cache != nil && prev.cache.asked.Load() {
		c.previous = prev.cache
	}
	c.cache = newContextCache(&c)
	return &c
}

// Inputs returns what the context was built from.
func (c *Context) Inputs() Inputs { return c.in }

// Object returns the configuration object with that key, or nil if there is none.
func (c *Context) Object(key config.Key) *config.Object { return c.in.Objects.At(key) }

// index updates the index for the kind of a changed object. If only the position in its file
// changed, the index keeps the old pointer, and everything that was computed from it stays valid.
func (c *Context) index(ch pmap.Change[config.Key, *config.Object]) {
	if ch.Old != nil && ch.New != nil && ch.Old.Hash != 0 && ch.Old.Hash == ch.New.Hash {
		return
	}
	switch ch.Key.Kind {
	case config.VirtualService:
		c.virtual = c.virtual.with(ch.Key, ch.New, c.in.Mesh.Domain)
	case config.DestinationRule:
		c.rules = c.rules.with(ch.Old, ch.New, c.in.Mesh.Domain)
	case config.Sidecar:
		c.sidecars = c.sidecars.with(ch.Key, ch.New)
	case config.Gateway:
		c.gateways.byKey = replace(c.gateways.byKey, ch.Key, ch.New)
	case config.WorkloadEntry:
		c.entries = c.entries.with(ch.Old, ch.New)
	case config.PeerAuthentication:
		c.peers.byKey = replace(c.peers.byKey, ch.Key, ch.New)
	case config.RequestAuthentication:
		c.requests.byKey = replace(c.requests.byKey, ch.Key, ch.New)
	case config.AuthorizationPolicy:
		c.authorization.byKey = replace(c.authorization.byKey, ch.Key, ch.New)
	}
}

// replace returns m with v at key k, or without k if v is zero.
func replace[K pmap.Key[K], V comparable](m pmap.Map[K, V], k K, v V) pmap.Map[K, V] {
	var zero V
	if v == zero {
		return m.Without(k)
	}
	return m.With(k, v)
}
