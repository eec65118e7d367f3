package mcp

import (
	"testing"
	"testing/synctest"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// Who publishes does not wait while something is made for a reader: pushes to proxies would wait with him. What he published
// meanwhile is what is told next.
func TestPublishWhileMaking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCatalog(CatalogConfig{})
		o := &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: "web"}, Spec: &networking.ServiceEntry{Hosts: []string{"web.test"}}}
		kind, _ := config.Info(config.ServiceEntry)
		name, release, read := typeURLs(kind)[0], make(chan struct{}), make(chan int)
		length := func() int { set, _ := c.Set(name); return set.Len() }
		c.PublishFrom(func() Objects { <-release; return Objects{}.With(o.Key, o) })
		go func() { read <- length() }()
		synctest.Wait()
		published := false
		go func() {
			c.Publish(Objects{})
			published = c.Ready()
		}()
		synctest.Wait()
		if !published {
			t.Error("who publishes waits for who reads")
		}
		close(release)
		if got := <-read; got != 1 {
			t.Errorf("the reader is told of %d", got)
		}
		if got := length(); got != 0 {
			t.Errorf("who reads next is told of %d, and nothing was published", got)
		}
	})
}

// What is made for others is made when somebody asks, once, and the latest alone.
func TestPublishFrom(t *testing.T) {
	t.Parallel()
	c := NewCatalog(CatalogConfig{})
	o := &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: "web"}, Spec: &networking.ServiceEntry{Hosts: []string{"web.test"}}}
	calls := 0
	c.PublishFrom(func() Objects { t.Error("what is over is made"); return Objects{} })
	c.PublishFrom(func() Objects { calls++; return Objects{}.With(o.Key, o) })
	if !c.Ready() || calls != 0 {
		t.Errorf("made %d times before anybody asks, ready %v", calls, c.Ready())
	}
	kind, _ := config.Info(config.ServiceEntry)
	name := typeURLs(kind)[0]
	for asked, want := range map[string]bool{name: true, meshType: true, "networking.istio.io/v1/Nothing": false, "": false} {
		if got := c.Knows(asked); got != want || calls != 0 {
			t.Errorf("%q is known: %v, want %v; made %d times", asked, got, want, calls)
		}
	}
	for range 2 {
		if set, ok := c.Set(name); !ok || set.Len() != 1 {
			t.Errorf("%s: %d, %v", name, set.Len(), ok)
		}
	}
	if calls != 1 {
		t.Errorf("made %d times", calls)
	}
	c.PublishFrom(func() Objects { t.Error("what is over is made"); return Objects{} })
	c.Publish(Objects{})
	if set, _ := c.Set(name); set.Len() != 0 {
		t.Errorf("%d are left", set.Len())
	}
}
