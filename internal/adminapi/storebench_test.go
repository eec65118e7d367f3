package adminapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// manyFiles are ten files with so many objects together; version makes them differ.
func manyFiles(objects int, version string) []admin.Piece {
	var out []admin.Piece
	for f := range 10 {
		var text strings.Builder
		for i := range objects / 10 {
			name := fmt.Sprintf("s%d", f*objects/10+i)
			text.WriteString("---\n")
			text.WriteString(strings.Replace(fmt.Sprintf(entryFile, name), "{address: 10.0.0.1}",
				"{address: 10.0.0.1, labels: {version: "+version+"}}", 1))
		}
		out = append(out, admin.Piece{File: fmt.Sprintf("%d.yaml", f), Data: []byte(text.String())})
	}
	return out
}

// apply applies files as who.
func (a *API) apply(ctx context.Context, who string, files ...admin.Piece) (admin.Written, error) {
	return a.Write(admin.WithCaller(ctx, who, admin.Operator), admin.StoreWrite{Action: admin.Apply, Pieces: files})
}

// newStorekeeper keeps a store; events go to record.
func newStorekeeper(s meshStore, record func(audit.Event)) *API {
	active := settings.Config{SourceList: []settings.Source{{Name: "store", Kind: "store"}}}
	return &API{Store: s, Settings: active, Published: publish(nil), Record: record}
}

// openBolt opens a store of its own.
func openBolt(t testing.TB) meshStore {
	t.Helper()
	s, err := bolt.New(bolt.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// consulStores makes prefixes that no other store of this run has.
var consulStores atomic.Int64

// openConsul opens a new store in a Consul.
func openConsul(t testing.TB, agent *testconsul.Agent) meshStore {
	t.Helper()
	home := openBolt(t).(*bolt.Store)
	s, err := consul.Open(t.Context(), consul.Config{Options: consul.Options{Address: "http://" + agent.Address,
		Prefix: fmt.Sprintf("ashore/%d", consulStores.Add(1))}, Replica: "one", Kept: home, Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// BenchmarkStoreApply applies 10,000 objects at once, each of them changed: to bbolt with its
// fsync, and to Consul with its own.
func BenchmarkStoreApply(b *testing.B) {
	b.Run("bolt", func(b *testing.B) { benchApply(b, openBolt(b)) })
	b.Run("consul", func(b *testing.B) { benchApply(b, openConsul(b, testconsul.Start(b, nil))) })
}

func benchApply(b *testing.B, s meshStore) {
	k := newStorekeeper(s, func(audit.Event) {})
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		files := manyFiles(10_000, fmt.Sprintf("v%d", i))
		b.StartTimer()
		if _, err := k.apply(b.Context(), "bench", files...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStoreUnchanged applies 10,000 objects that are there already.
func BenchmarkStoreUnchanged(b *testing.B) {
	k := newStorekeeper(openBolt(b), func(audit.Event) {})
	files := manyFiles(10_000, "v1")
	for b.Loop() {
		if _, err := k.apply(b.Context(), "bench", files...); err != nil {
			b.Fatal(err)
		}
	}
}

// meshStore is a store of objects and records.
type meshStore interface {
	config.Store
	Records() record.Store
}

const entryFile = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`
