package push

import (
	"fmt"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// A destination that the first client finds costs the same however many others there are. (Not in parallel: it counts allocations.)
func TestDestinationAsksNoMoreThanItMust(t *testing.T) {
	in := emptyInputs()
	k := registry.Key{Host: "web.com", Namespace: "a"}
	in.Services = in.Services.With(k, &registry.Service{Key: k, Ports: []registry.Port{{Number: 80}}})
	aged(&in, config.DestinationRule, "a", "web", &config.Object{Spec: &networking.DestinationRule{Host: "web.com", Subsets: []*networking.Subset{{Name: "v1"}}}})
	d := newDangling(Build(nil, in))
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprint("n", i))
	}
	to := &networking.Destination{Host: "web.com", Port: &networking.PortSelector{Number: 80}, Subset: "v1"}
	cost := func(clients []string) float64 {
		return testing.AllocsPerRun(10, func() { d.destination(config.Key{}, clients, destinationPlace{}, to) })
	}
	if one, all := cost(many[:1]), cost(many); one != all || len(d.problems) > 0 {
		t.Errorf("%v allocations for 1 client, %v for 1000; problems %v", one, all, d.problems)
	}
}
