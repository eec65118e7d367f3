package relay

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// cache holds acknowledged resources by type and name. Safe for concurrent use.
type cache struct {
	changed chan struct{} // capacity 1; the file is out of date

	mu    sync.Mutex
	types map[string]*cachedType // guarded by mu
}

// cachedType is one type of resources.
type cachedType struct {
	// All says that everything was subscribed, and that Resources is complete.
	All       bool
	Resources map[string]cached
}

// cached is one resource.
type cached struct {
	Version string
	Raw     []byte // an encoded Resource of a discovery response; nil: there is none of this name
}

func newCache() *cache {
	return &cache{changed: make(chan struct{}, 1), types: map[string]*cachedType{}}
}

// put stores an acknowledged response to a subscription.
func (c *cache) put(r *ads.Reply, s *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.types[r.TypeURL]
	if t == nil || s.newEnvoy {
		t = &cachedType{Resources: map[string]cached{}}
		c.types[r.TypeURL] = t
	}
	t.All = s.all
	for _, it := range r.Items {
		if s.wants(it.Name) {
			t.Resources[it.Name] = cached{it.Version, bytes.Clone(it.Raw)} // do not keep the whole response in memory
		}
	}
	for _, name := range r.Removed {
		if s.all {
			delete(t.Resources, name)
		} else if s.wants(name) {
			t.Resources[name] = cached{}
		}
	}
	if !s.all && len(t.Resources) > 2*len(s.names)+maxUnused {
		maps.DeleteFunc(t.Resources, func(name string, _ cached) bool { return !s.wants(name) })
	}
	task.Poke(c.changed)
}

// maxUnused is how many resources without a subscription stay. They do not go at once, because an
// Envoy that ends unsubscribes from what the next one needs.
const maxUnused = 1000

// reply returns the resources of a type that wanted accepts, sorted by name, without bodies. all
// says that the cache is complete for the type.
func (c *cache) reply(typeURL string, wanted func(name string) bool) (r *ads.Reply, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r = &ads.Reply{TypeURL: typeURL}
	t := c.types[typeURL]
	if t == nil {
		return r, false
	}
	for name, res := range t.Resources {
		switch {
		case !wanted(name):
		case res.Raw == nil:
			r.Removed = append(r.Removed, name)
		default:
			r.Items = append(r.Items, ads.Item{Name: name, Version: res.Version, Raw: res.Raw})
		}
	}
	slices.Sort(r.Removed)
	slices.SortFunc(r.Items, func(a, b ads.Item) int { return strings.Compare(a.Name, b.Name) })
	return r, t.All
}

// read returns all resources of a type, with bodies.
func (c *cache) read(typeURL string) (*ads.Reply, error) {
	r, _ := c.reply(typeURL, everything)
	r.Nonce = "cache" // ReadReply requires one
	return ads.ReadReply(r.Encode(), false)
}

// snapshot returns a copy of all types. It shares the resources' bytes, which never change.
func (c *cache) snapshot() map[string]*cachedType {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]*cachedType, len(c.types))
	for typeURL, t := range c.types {
		out[typeURL] = &cachedType{t.All, maps.Clone(t.Resources)}
	}
	return out
}

// everything accepts every name.
func everything(string) bool { return true }
