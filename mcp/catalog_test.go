package mcp

import (
	"testing"
	"testing/synctest"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// entryType is the newest type URL of ServiceEntry.
const entryType = "networking.istio.io/v1/ServiceEntry"

// oneEntry is a set of one ServiceEntry.
func oneEntry() Objects {
	o := &config.Object{
		Key:  config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: "web"},
		Spec: &networking.ServiceEntry{Hosts: []string{"web.test"}},
	}
	return Objects{}.With(o.Key, o)
}

func wantEntries(t *testing.T, c *Catalog, want int) {
	t.Helper()
	if set, ok := c.Set(entryType); !ok || set.Len() != want {
		t.Errorf("the catalog has %d ServiceEntries (known %v), want %d", set.Len(), ok, want)
	}
}

// Pushes to proxies wait for Publish, so Publish does not wait for a slow read.
func TestPublishDuringRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCatalog(CatalogConfig{})
		release, read := make(chan struct{}), make(chan int)
		c.Publish(func() Objects { <-release; return oneEntry() })
		go func() {
			set, _ := c.Set(entryType)
			read <- set.Len()
		}()
		synctest.Wait()
		published := false
		go func() {
			c.Publish(func() Objects { return Objects{} })
			published = true
		}()
		synctest.Wait()
		if !published {
			t.Error("Publish waits for a read")
		}
		close(release)
		if got := <-read; got != 1 {
			t.Errorf("the read returned %d ServiceEntries, want the 1 that was published before it", got)
		}
		wantEntries(t, c, 0)
	})
}

// Published objects are converted by the first read, once, and only the latest of them.
func TestPublish(t *testing.T) {
	t.Parallel()
	c := NewCatalog(CatalogConfig{})
	calls := 0
	replaced := func() Objects {
		t.Error("replaced objects were converted")
		return Objects{}
	}
	c.Publish(replaced)
	c.Publish(func() Objects { calls++; return oneEntry() })
	if calls != 0 {
		t.Errorf("converted %d times before the first read", calls)
	}
	known := map[string]bool{entryType: true, meshType: true, "networking.istio.io/v1/Nothing": false, "": false}
	for typeURL, want := range known {
		if got := c.Knows(typeURL); got != want || calls != 0 {
			t.Errorf("Knows(%q) = %v, want %v; converted %d times", typeURL, got, want, calls)
		}
	}
	wantEntries(t, c, 1)
	wantEntries(t, c, 1)
	if calls != 1 {
		t.Errorf("converted %d times, want once", calls)
	}
	c.Publish(replaced)
	c.Publish(func() Objects { return Objects{} })
	wantEntries(t, c, 0)
}
