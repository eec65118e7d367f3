package gen

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// bigScope is a mesh of n services, each with an address of its own, one HTTP and one TCP port.
func bigScope(n int) *push.Scope {
	services := make([]*registry.Service, n)
	for i := range services {
		ip := netip.AddrFrom4([4]byte{240, 240, byte(i >> 8), byte(i)})
		services[i] = gentest.Service(fmt.Sprintf("svc-%05d.mesh.example", i), 1, ip.String(), "http/80", "tcp/3306")
	}
	sc := gentest.Scope(gentest.Egress(nil, services...))
	sc.Mesh.Config.AccessLogFile = "/dev/stdout"
	return sc
}

// BenchmarkListenersFirst plans, builds and encodes all listeners of a mesh.
func BenchmarkListenersFirst(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		sc := bigScope(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for r := range New().Set(resource.ListenerType, sc).All() {
					r.Body()
				}
			}
		})
	}
}

// BenchmarkListenersOneService changes one service of a mesh each time.
func BenchmarkListenersOneService(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			sc := bigScope(n)
			l := New()
			held := l.Set(resource.ListenerType, sc)
			for i := uint32(0); b.Loop(); i++ {
				b.StopTimer()
				items := slices.Clone(sc.Egress.Items()[0].Services.Items())
				ip := netip.AddrFrom4([4]byte{241, byte(i >> 16), byte(i >> 8), byte(i)})
				items[n/2] = gentest.Service(items[n/2].Host, 1, ip.String(), "http/80", "tcp/3306")
				changed := gentest.Scope(gentest.Egress(nil, items...))
				changed.Mesh = sc.Mesh
				b.StartTimer()
				held = l.Set(resource.ListenerType, changed)
			}
			runtime.KeepAlive(held)
		})
	}
}

// BenchmarkListenersNothing asks again for a scope that did not change.
func BenchmarkListenersNothing(b *testing.B) {
	sc := bigScope(1000)
	l := New()
	held := l.Set(resource.ListenerType, sc)
	b.ReportAllocs()
	for b.Loop() {
		if l.Set(resource.ListenerType, sc) != held {
			b.Fatal("another set")
		}
	}
}
