package consul

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// bench is a store in a Consul of its own, which says nothing.
func bench(b *testing.B) (site, *Store) {
	b.Helper()
	s := newSite(testconsul.Start(b, nil))
	c := s.config(b, newShelf())
	c.Log = hclog.NewNullLogger()
	store, err := Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	return s, store
}

// bare does a request to Consul and reads its answer: the least that one costs.
func (s site) bare(b *testing.B, method, path, body string) {
	req, err := http.NewRequestWithContext(b.Context(), method, s.address+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		b.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, err)
	}
}

// BenchmarkApply writes 10,000 objects at once, each changed. The floor is Consul taking as many
// bytes as that became.
func BenchmarkApply(b *testing.B) {
	s, store := bench(b)
	changes := func(n int) []config.Change {
		out := make([]config.Change, 10_000)
		for i := range out {
			o := configtest.Object(fmt.Sprintf("o%d", i), fmt.Sprintf("s%d-v%d.test", i, n))
			out[i] = config.Change{Key: o.Key, Object: o}
		}
		return out
	}
	n := 0
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			n++
			list := changes(n)
			b.StartTimer()
			if _, err := store.Apply(b.Context(), list, "bench"); err != nil {
				b.Fatal(err)
			}
		}
	})
	entry := s.kv(b, http.MethodGet, store.config.keyOfEntry(store.config.state.Load().Revision), "")
	a, _, err := parseEntry([]byte(entry))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			for i := range a.Parts {
				s.bare(b, http.MethodPut, fmt.Sprintf("/v1/kv/floor/%d", i), strings.Repeat("x", partSize))
			}
			s.bare(b, http.MethodPut, "/v1/kv/floor/entry", entry)
		}
	})
	list := changes(n)
	b.Run("encoding and decoding alone", func(b *testing.B) {
		for b.Loop() {
			for _, c := range list {
				value, err := storage.EncodeObject(c.Object, 1)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := storage.DecodeObject("bench", c.Key, value); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkCommit writes one record. The floor is Consul taking one value.
func BenchmarkCommit(b *testing.B) {
	s, store := bench(b)
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			if err := store.Records().Commit(b.Context(), record.Write{Key: record.Key{Table: "t", Name: "x"},
				Value: []byte("x"), Version: record.Any}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			s.bare(b, http.MethodPut, "/v1/kv/floor/x", "x")
		}
	})
}

// BenchmarkGet reads one record, as of now. The floor is Consul telling one value as of now.
func BenchmarkGet(b *testing.B) {
	s, store := bench(b)
	put(b, store, "x", "x")
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			valueOf(b, store, "x")
		}
	})
	b.Run("store, 64 at a time", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				valueOf(b, store, "x")
			}
		})
	})
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			s.bare(b, http.MethodGet, "/v1/kv/"+s.prefix+"/identity/head?consistent", "")
		}
	})
}

// BenchmarkHeard writes one record, and has another replica hear of it. The floor is Consul ending
// a wait for a value that is written.
func BenchmarkHeard(b *testing.B) {
	s, store := bench(b)
	put(b, store, "x", "0")
	other := s.open(b)
	told := other.Records().Watch(b.Context(), "t")
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			put(b, store, "x", "x")
			<-told
		}
	})
	b.Run("floor", func(b *testing.B) {
		s.bare(b, http.MethodPut, "/v1/kv/floor/x", "x")
		_, meta, err := store.client.kv.Get("floor/x", nil)
		if err != nil {
			b.Fatal(err)
		}
		index := meta.LastIndex
		for n := 0; b.Loop(); n++ {
			done := make(chan error, 1)
			go func() {
				_, meta, err := store.client.kv.Get("floor/x", &api.QueryOptions{WaitIndex: index,
					WaitTime: time.Minute})
				if err == nil {
					index = meta.LastIndex
				}
				done <- err
			}()
			// Consul tells nobody of a value that is the same
			s.bare(b, http.MethodPut, "/v1/kv/floor/x", fmt.Sprint(n))
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpen starts a replica on 10,000 objects, with a snapshot and without one.
func BenchmarkOpen(b *testing.B) {
	s, store := bench(b)
	if _, err := store.Apply(b.Context(), bigChange(10_000), "bench"); err != nil {
		b.Fatal(err)
	}
	open := func(b *testing.B) {
		for b.Loop() {
			c := s.config(b, newShelf())
			c.Log = hclog.NewNullLogger()
			other, err := Open(b.Context(), c)
			if err != nil {
				b.Fatal(err)
			}
			if err := other.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("entries", open)
	if err := store.config.snapshot(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Run("snapshot", open)
}
