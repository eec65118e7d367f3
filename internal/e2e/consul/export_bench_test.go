package consul

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// BenchmarkExport registers 1,000 services of the mesh with 10,000 endpoints in Consul, and then
// follows flaps. The floor is Consul's own client, which writes as many entries on as many nodes,
// in transactions of the same size one after the other. go test -run '^$' -bench Export -benchtime
// 1x ./internal/e2e/consul
func BenchmarkExport(b *testing.B) {
	const services, instances = 1000, 10
	a := testconsul.Start(b, nil)
	c := newCatalog(b, a, "")
	w := ways()[0]
	for range b.N {
		floor := written(b, c, services*instances)
		o := w.options(a)
		o.Export.Owner = shop
		e, err := consul.NewExporter(consul.ExporterConfig{Name: "bench", Replica: "bench", Options: o,
			Log: testlog.New(b)})
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		began, cpu := time.Now(), used()
		go func() { defer close(done); _ = e.Run(b.Context()) }() // Run's error is always nil
		m := meshOf(services, instances)
		e.Publish(m.services, m.endpoints)
		for e.Status().Entries < services*instances {
			time.Sleep(5 * time.Millisecond)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/export")
		b.ReportMetric(time.Since(began).Seconds()/floor.Seconds(), "x-floor")
		b.ReportMetric((used() - cpu).Seconds(), "cpu-s/export")
		b.ReportMetric(float64(e.Status().Writes), "transactions")
		m.flaps(b, c, e)
		e.Withdraw()
		<-done
	}
}

// written has Consul's own client write entries on a node of its own, and remove it.
func written(b *testing.B, c catalog, entries int) time.Duration {
	b.Helper()
	const size, each = 31, 10_000 // of a transaction, and on a node
	nodes := func(do func(node string) error) {
		for n := range (entries + each - 1) / each {
			if err := do(fmt.Sprintf("floor-%d", n)); err != nil {
				b.Fatal(err)
			}
		}
	}
	nodes(func(node string) error {
		_, err := c.c.Catalog().Register(&api.CatalogRegistration{Node: node, Address: "10.9.9.9"}, nil)
		return err
	})
	began := time.Now()
	var ops api.TxnOps
	for i := range entries {
		id, node := fmt.Sprintf("floor-%d", i), fmt.Sprintf("floor-%d", i/each)
		ops = append(ops, &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: node,
			Service: api.AgentService{ID: id, Service: fmt.Sprintf("floor%d", i/10), Port: 8080, Address: "10.0.0.1",
				Tags: []string{"version=1"}, Meta: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}}}},
			&api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet,
				Check: api.HealthCheck{Node: node, CheckID: id, Name: "health", Status: "passing", ServiceID: id}}})
		if len(ops) == 2*size || i == entries-1 {
			if ok, resp, _, err := c.c.Txn().Txn(ops, nil); err != nil || !ok {
				b.Fatalf("%v %+v", err, resp)
			}
			ops = nil
		}
	}
	took := time.Since(began)
	nodes(func(node string) error {
		_, err := c.c.Catalog().Deregister(&api.CatalogDeregistration{Node: node}, nil)
		return err
	})
	return took
}

// benchMesh is what a mesh has.
type benchMesh struct {
	services  consul.Services
	endpoints consul.Endpoints
}

func meshOf(services, instances int) benchMesh {
	var m benchMesh
	for s := range services {
		k := registry.Key{Host: fmt.Sprintf("svc%d.example", s), Namespace: "shop"}
		l := &registry.EndpointList{}
		for i := range instances {
			l.Items = append(l.Items, registry.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", 1+s/250, s%250, i+1),
				Labels: map[string]string{"version": "1"}})
		}
		m.services = m.services.With(k, &registry.Service{Key: k,
			Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP, TargetPort: 8080}}})
		m.endpoints = m.endpoints.With(k, l)
	}
	return m
}

// flaps measures the delay from when the mesh has a flap until Consul's own client sees it.
func (m benchMesh) flaps(b *testing.B, c catalog, e *consul.Exporter) {
	b.Helper()
	const n = 20
	k := registry.Key{Host: "svc7.example", Namespace: "shop"}
	var took []time.Duration
	cpu := used()
	for i := range n {
		saw := c.seen(b)
		l := &registry.EndpointList{Items: slices.Clone(m.endpoints.At(k).Items)}
		l.Items[0].Health = []registry.Health{registry.Unhealthy, registry.Healthy}[i%2]
		began := time.Now()
		e.Publish(m.services, m.endpoints.With(k, l))
		took = append(took, (<-saw).Sub(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[n/2].Microseconds())/1000, "ms-flap-p50")
	b.ReportMetric(float64(took[n-1].Microseconds())/1000, "ms-flap-max")
	b.ReportMetric(float64((used()-cpu).Microseconds())/1000/n, "cpu-ms/flap")
}
