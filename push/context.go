package push

import (
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Objects are all configuration objects by key.
type Objects = pmap.Map[config.Key, *config.Object]

// Services are all services by key.
type Services = pmap.Map[registry.Key, *registry.Service]

// Endpoints are the endpoints of all services by key.
type Endpoints = pmap.Map[registry.Key, *registry.EndpointList]

// Inputs are everything that a Context depends on. Comparable.
type Inputs struct {
	// Mesh are the mesh-wide settings, never nil.
	Mesh *Mesh
	// Objects is all configuration that is at work.
	Objects Objects
	// Services and Endpoints are what all registries supply, merged.
	Services  Services
	Endpoints Endpoints
	// Trust is whom workloads believe; nil: there is no certificate authority.
	Trust *Trust
	// Keys are those of the issuers of tokens; nil: none was fetched.
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
	workloads workloads
	entries   workloadEntries

	peers, requests, authorization policies
	identities                     identities

	held   *held // what was computed from the above, on demand
	before *held // that of the last context before that was asked anything, so that it is found again
}

// Build makes the context of in. It equals Build(nil, in): prev, which may be nil, only donates what
// did not change, so that the cost is that of the changes.
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
	if prev.held != nil && prev.held.asked.Load() {
		c.before = prev.held
	}
	c.held = hold(&c)
	return &c
}

// Inputs returns what the context was built from.
func (c *Context) Inputs() Inputs { return c.in }

// Object returns the configuration object of that key; nil when there is none.
func (c *Context) Object(key config.Key) *config.Object { return c.in.Objects.At(key) }

// index brings one changed object into the index of its kind. One that has only moved, say to another line of
// its file, has no other effect than before: the index keeps the old pointer, and with it all that was made of it.
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
		c.gateways = c.gateways.with(ch.Key, ch.New)
	case config.WorkloadEntry:
		c.entries = c.entries.with(ch.Old, ch.New)
	case config.PeerAuthentication:
		c.peers = c.peers.with(ch.Key, ch.New)
	case config.RequestAuthentication:
		c.requests = c.requests.with(ch.Key, ch.New)
	case config.AuthorizationPolicy:
		c.authorization = c.authorization.with(ch.Key, ch.New)
	}
}
