package push

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// subsetLabels checks that the labels of each subset select some endpoint of a service that the rule governs. Services
// without endpoints, whose machines may be on their way, say nothing.
func (d *dangling) subsetLabels(o *config.Object, services iter.Seq[*registry.Service]) {
	for i, s := range o.Spec.(*networking.DestinationRule).Subsets {
		if len(s.Labels) == 0 {
			continue
		}
		if without := d.withoutSubset(s.Labels, services); without != nil {
			d.warn(o.Key, fmt.Sprintf("spec.subsets[%d].labels", i), "no endpoint of %s has %s, so what is routed to subset %s fails: correct the labels, or give them to its endpoints%s",
				without.Host, labelsText(s.Labels), s.Name, d.labelled(without, s.Labels))
		}
	}
}

// withoutSubset finds a service that has endpoints, none of them with these labels; nil when there is none, or when
// another service has such an endpoint.
func (d *dangling) withoutSubset(labels map[string]string, services iter.Seq[*registry.Service]) (without *registry.Service) {
	for s := range services {
		list := d.context.in.Endpoints.At(s.Key)
		if list.Len() == 0 || s.Resolution == registry.Passthrough {
			continue
		}
		for i := range list.Items {
			if selectsAll(labels, list.Items[i].Labels) {
				return nil
			}
		}
		if without == nil {
			without = s
		}
	}
	return without
}

// labelled proposes what the endpoints of a service have where labels say something else.
func (d *dangling) labelled(s *registry.Service, labels map[string]string) string {
	have := map[string]bool{}
	items := d.context.in.Endpoints.At(s.Key).Items
	for i := range items {
		for name := range labels {
			if value, ok := items[i].Labels[name]; ok {
				have[name+": "+value] = true
			}
		}
	}
	if len(have) == 0 {
		return ""
	}
	return ", which have " + some(slices.Sorted(maps.Keys(have)))
}

// labelsText is a set of labels for people.
func labelsText(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+": "+labels[name])
	}
	if len(out) == 1 {
		return "the label " + out[0]
	}
	return "the labels " + strings.Join(out, ", ")
}
