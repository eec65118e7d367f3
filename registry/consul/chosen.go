package consul

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// unchosen is that the settings choose none of the services that there are; nil: they choose some, or there are none.
type unchosen struct {
	services map[string]bool // by their names
	options  string          // which choose so
}

// unchosen finds whether that is so when these are the names of a place by the settings. A Consul that does not say is believed
// to have none: it is asked again with the next change.
func (k *keeper) unchosen(ctx context.Context, sc *scope, names []string) *unchosen {
	if slices.ContainsFunc(names, k.o.counts) {
		return nil
	}
	if all := besidesConsul(names); len(all) > 0 {
		return &unchosen{all, k.o.choosers(false)}
	}
	o := *k.o
	o.Tags, o.Metadata, o.NodeMetadata = nil, nil, nil
	if o.nameFilter() == k.o.nameFilter() {
		return nil
	}
	names, _, err := k.client.services(ctx, query{place: sc.at, filter: o.nameFilter()})
	if err != nil {
		k.log.Debug("Consul does not say which services there are that the settings do not choose", "error", k.client.explain(err))
		return nil
	}
	if all := besidesConsul(names); len(all) > 0 {
		return &unchosen{all, k.o.choosers(true)}
	}
	return nil
}

// besidesConsul are services but Consul's own.
func besidesConsul(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		if name != "consul" {
			out[name] = true
		}
	}
	return out
}

// choosers are the options by which services count, for people: those about their instances, or else about their names.
func (o Options) choosers(instances bool) string {
	var out []string
	add := func(set bool, option string, value any) {
		if set {
			out = append(out, fmt.Sprintf("%s: %v", option, value))
		}
	}
	if instances {
		add(len(o.Tags) > 0, "tags", o.Tags)
		add(len(o.Metadata) > 0, "metadata", says(o.Metadata))
		add(len(o.NodeMetadata) > 0, "nodeMetadata", says(o.NodeMetadata))
	} else {
		add(len(o.Services) > 0, "services", o.Services)
		add(len(o.Except) > 0, "except", o.Except)
	}
	return strings.Join(out, ", ")
}

// says is what metadata must say, for people.
func says(want map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		out = append(out, k+": "+want[k])
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// excludes says that one of some services is there: it was not lost.
func (u *unchosen) excludes(names []string) bool {
	return u != nil && slices.ContainsFunc(names, func(name string) bool { return u.services[name] })
}

// text tells of it.
func (u *unchosen) text(address string) string {
	return fmt.Sprintf("the settings choose none of the %d services of Consul at %s (%s)", len(u.services), address, u.options)
}

// tellUnchosen tells that the settings choose nothing, where no service stays in spite of that: else that tells it.
func (k *keeper) tellUnchosen(sc *scope) {
	if sc.unchosen == nil || sc.lostNotice.problem != nil {
		k.notify(sc.chosenNotice, nil, time.Time{})
		return
	}
	k.notify(sc.chosenNotice, &feed.Problem{
		Severity: feed.Warning, Object: sc.at.title(),
		Text: sc.unchosen.text(k.o.Address) + ": none is part of the mesh; mend that (names and values count in capital and small letters as they are written), or take the source out",
	}, time.Time{})
}
