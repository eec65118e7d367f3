package ca

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// What was issued and refused can be counted, by how and why.
func TestServerMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	l := newLab(t, func(c *ServerConfig) { c.Registerer = r })
	l.serve()
	cert := l.join("shop/web", "a")
	for _, c := range []client{{cert: cert, csr: []byte("hello")}, {}} {
		if _, _, err := l.ask(c); err == nil {
			t.Error("a bad call gets a certificate")
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += fmt.Sprintf("{%s}", label.GetValue())
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"ashore_ca_issued_total{token}": 1, "ashore_ca_issued_total{certificate}": 0, "ashore_ca_issued_total{jwt}": 0,
		"ashore_ca_issued_total{kubernetes}": 0,
		"ashore_ca_issued_total{replica}":    0, "ashore_ca_refused_total{bad request}": 1, "ashore_ca_refused_total{no proof}": 1,
		"ashore_ca_seconds": 3,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
