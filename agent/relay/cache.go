package relay

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/xds/resource"
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
func (c *cache) put(r *response, s *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.types[r.TypeUrl]
	if t == nil || s.newEnvoy {
		t = &cachedType{Resources: map[string]cached{}}
		c.types[r.TypeUrl] = t
	}
	t.All = s.all
	for _, res := range r.Resources {
		if s.wants(res.Name) {
			t.Resources[res.Name] = cached{res.Version, resource.Encode(res)}
		}
	}
	for _, name := range r.RemovedResources {
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

// reply returns the resources of a type that wanted accepts, sorted by name. all says that the cache
// is complete for the type. Errors: a resource cannot be decoded.
func (c *cache) reply(typeURL string, wanted func(name string) bool) (r *response, all bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r = &response{TypeUrl: typeURL}
	t := c.types[typeURL]
	if t == nil {
		return r, false, nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.Resources)) {
		raw := t.Resources[name].Raw
		switch {
		case !wanted(name):
		case raw == nil:
			r.RemovedResources = append(r.RemovedResources, name)
		default:
			res := &discoveryv3.Resource{}
			if err := proto.Unmarshal(raw, res); err != nil {
				return nil, false, fmt.Errorf("cached %s %s: %w", shortType(typeURL), name, err)
			}
			r.Resources = append(r.Resources, res)
		}
	}
	return r, t.All, nil
}

// versions returns the versions of the resources of a type by name.
func (c *cache) versions(typeURL string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	if t := c.types[typeURL]; t != nil {
		for name, res := range t.Resources {
			if res.Raw != nil {
				out[name] = res.Version
			}
		}
	}
	return out
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
