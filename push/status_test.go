package push

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Problems of objects come before those of services and those between them, each in order of place, however many there are.
func TestStatusInOrder(t *testing.T) {
	t.Parallel()
	a := NewAssembler(AssemblerConfig{Mesh: emptyInputs().Mesh, Publish: func(*Context, Changes) {}})
	a.objects = feed.NewMerger([]string{"files"}, func(o *config.Object) config.Key { return o.Key })
	a.instances = feed.NewMerger([]string{"hosts"}, func(in registry.Instances) registry.Key { return in.Service.Key })
	objects := feed.Batch[*config.Object]{Source: "files", Full: true}
	instances := feed.Batch[registry.Instances]{Source: "hosts", Full: true}
	var want []string
	for i := range 99 {
		group := fmt.Sprintf("%02d", i)
		problems := func(of string) []feed.Problem {
			return []feed.Problem{{File: of + group, Text: "second"}, {File: of + group, Text: "first"}}
		}
		objects.Updates = append(objects.Updates, feed.Update[*config.Object]{Group: group, Problems: problems("z")})
		instances.Updates = append(instances.Updates, feed.Update[registry.Instances]{Group: group, Problems: problems("y")})
		a.stand(place{group: group}, []finding{{problem: feed.Problem{File: "x" + group, Text: "only"}}})
		want = append(want, "z"+group+": first", "z"+group+": second", "y"+group+": first", "y"+group+": second", "x"+group+": only")
	}
	slices.SortStableFunc(want, func(a, b string) int { return int(b[0]) - int(a[0]) })
	a.objects.Apply(objects, time.Time{})
	a.instances.Apply(instances, time.Time{})
	var got []string
	for _, p := range a.Status().Problems {
		got = append(got, p.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
