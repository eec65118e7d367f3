package shared_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/runtimetest"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// crowd is the n-th of many workloads.
func crowd(n int, session string) registry.Registration {
	r := runtimetest.Web(session)
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 10<<24|uint32(n))
	r.Addresses = []netip.Addr{netip.AddrFrom4(ip)}
	r.Name = registry.RegistrationName(r.Group, r.Addresses[0], "")
	return r
}

// How long it takes until another replica tells of one report among 10,000 workloads: the store itself costs nothing here.
func BenchmarkReport(b *testing.B) {
	store := record.NewMemory()
	open := func() *shared.Runtime {
		rt, err := shared.New(b.Context(), shared.Config{Records: store, Log: hclog.NewNullLogger()})
		if err != nil {
			b.Fatal(err)
		}
		return rt
	}
	one, two := open(), open()
	for _, rt := range []*shared.Runtime{one, two} {
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { done <- rt.Run(ctx) }()
		b.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
	}
	told := two.Watch(b.Context())
	wait := func(ok func() bool) {
		for !ok() {
			<-told
		}
	}
	const n = 10_000
	for i := range n {
		if err := one.Connect(b.Context(), crowd(i, "s")); err != nil {
			b.Fatal(err)
		}
	}
	wait(func() bool { return two.Registrations().Len() == n })
	key := crowd(7, "s").RegistrationKey
	b.ResetTimer()
	for i := range b.N {
		state := registry.ReportedHealthy + registry.Reported(i%2)
		if err := one.Report(b.Context(), key, "s", registry.Report{State: state}); err != nil {
			b.Fatal(err)
		}
		wait(func() bool { return two.Registrations().At(key).Health.State == state })
	}
}
