package mcp

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// manyItems are ten thousand ServiceEntries as they travel, one of which has another port in each series.
func manyItems(b *testing.B, series uint32, deterministic bool) (list, []item) {
	b.Helper()
	items := make([]item, 10_000)
	for i := range items {
		e := &networking.ServiceEntry{Hosts: []string{fmt.Sprintf("s%d.test", i)}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}}, Location: networking.ServiceEntry_MESH_INTERNAL}
		if i == 7 {
			e.Ports[0].Number += series
		}
		for n := range 4 {
			e.Endpoints = append(e.Endpoints, &networking.WorkloadEntry{Address: fmt.Sprintf("10.%d.%d.%d", i/250, i%250, n+1), Labels: map[string]string{"app": "a", "version": "v1"}})
		}
		body := &anypb.Any{}
		if err := anypb.MarshalFrom(body, e, proto.MarshalOptions{Deterministic: deterministic}); err != nil {
			b.Fatal(err)
		}
		raw, err := proto.MarshalOptions{Deterministic: deterministic}.Marshal(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: fmt.Sprintf("shop/s%d", i)}, Body: body})
		if err != nil {
			b.Fatal(err)
		}
		items[i] = item{typeURL: resourceType, raw: raw}
	}
	info, _ := config.Info(config.ServiceEntry)
	return typeNames(info)[0], items
}

// Taking in ten thousand objects, and again with one of them changed, beside what decoding their protobufs costs alone.
func BenchmarkTake(b *testing.B) {
	l, items := manyItems(b, 0, true)
	_, others := manyItems(b, 1, true)
	_, shuffled := manyItems(b, 1, false)
	large := rules{source: "mcp:bench", most: len(items)}
	b.Run("decoding alone", func(b *testing.B) {
		for b.Loop() {
			for _, it := range items {
				res, spec := &mcpv1.Resource{}, &networking.ServiceEntry{}
				if err := proto.Unmarshal(it.raw, res); err != nil {
					b.Fatal(err)
				}
				if err := proto.Unmarshal(res.Body.Value, spec); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("all new", func(b *testing.B) {
		for b.Loop() {
			if v := newContent(large).take(l, &word{whole: true, items: clones(items)}, 1, start); v.count != 0 || len(v.changed) != len(items) {
				b.Fatal(v.refusal())
			}
		}
	})
	for name, others := range map[string][]item{"one changed": others, "one changed, maps in any order": shuffled} {
		b.Run(name, func(b *testing.B) {
			c := newContent(large)
			c.take(l, &word{whole: true, items: clones(items)}, 1, start)
			for i := 0; b.Loop(); i++ {
				if v := c.take(l, &word{whole: true, items: clones([][]item{others, items}[i%2])}, 1, start); len(v.changed) != 1 {
					b.Fatalf("%d changed", len(v.changed))
				}
			}
		})
	}
}

// clones are items that nobody has read yet.
func clones(items []item) []item { return append([]item(nil), items...) }
