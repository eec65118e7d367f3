package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// placesGap is how often Consul is asked for its datacenters, which nothing can wait for.
const placesGap = time.Minute

// places finds the places whose services count, and follows them.
func (k *keeper) places(ctx context.Context) {
	if len(k.o.Datacenters) == 0 {
		k.tell(ctx, func() { k.take(ctx, []string{""}) })
		return
	}
	var own string
	var began time.Time // the first failure of those in a row
	f := follower{what: "the datacenters", leads: true, tell: func(t *trouble) { k.unplaced, k.dirty = t, true }}
	for failures := 0; ; {
		list, err := k.datacenters(ctx, &own)
		wait := placesGap
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures++; failures == 1 {
				began = time.Now()
			}
			k.failed(ctx, f, failures, began, err)
			wait = 0
		default:
			k.recovered(ctx, f, failures)
			failures = 0
			k.tell(ctx, func() { k.take(ctx, k.withKept(list, own)) })
		}
		if err == nil && !slices.Contains(k.o.Datacenters, allDatacenters) || sleep(ctx, wait) != nil {
			return
		}
	}
}

// errNone is about answers that are none of Consul's.
var errNone = errors.New("the answer is none of Consul's: is it the address of Consul's HTTP interface?")

// datacenters are those that count; the agent's own is the empty name.
func (k *keeper) datacenters(ctx context.Context, own *string) ([]string, error) {
	list := slices.Clone(k.o.Datacenters)
	if *own == "" || slices.Contains(list, allDatacenters) {
		known, err := k.client.datacenters(ctx)
		if err != nil {
			return nil, err
		}
		if *own == "" {
			if *own, err = k.ownDatacenter(ctx, known); err != nil {
				return nil, err
			}
		}
		if slices.Contains(list, allDatacenters) {
			list = known
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w It names no datacenter", errNone)
	}
	for i, name := range list {
		if !datacenterName(name) {
			return nil, fmt.Errorf("%w It names a datacenter %q", errNone, consulhttp.OneLine(name))
		}
		if name == *own {
			list[i] = ""
		}
	}
	return list, nil
}

// errOwnUnread is why nobody knows which datacenter is the agent's own.
var errOwnUnread = errors.New("the token does not read the service consul, by which it is known which datacenter is the agent's own: give it node:read and service:read for that")

// ownDatacenter is that of the agent: the only one that it knows, or else by the instances of Consul's own service.
func (k *keeper) ownDatacenter(ctx context.Context, known []string) (string, error) {
	if len(known) == 1 && datacenterName(known[0]) {
		return known[0], nil
	}
	entries, _, err := k.client.instances(ctx, query{}, "consul")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e != nil && e.Node != nil && datacenterName(e.Node.Datacenter) {
			return e.Node.Datacenter, nil
		}
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("%w No instance of the service consul has a datacenter", errNone)
	}
	return "", errOwnUnread
}

// datacenterName says whether Consul would be called so.
// Source: Consul, agent/config (Validate: lowercase alphanumeric, - or _).
func datacenterName(name string) bool {
	return name != "" && len(name) <= maxDatacenter && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}

// maxDatacenter is longer than any name of a datacenter is, in bytes.
const maxDatacenter = 253

// withKept are these datacenters, of an agent in the one that is called own, and those of which something was kept from before the
// start: one that Consul does not know, as a server before it has joined the others, is not gone for that, but away.
func (k *keeper) withKept(list []string, own string) []string {
	if !slices.Contains(k.o.Datacenters, allDatacenters) || k.o.Emptied == emptiedBelieve {
		return list
	}
	list = slices.Clone(list)
	for group := range k.kept {
		dc, _, within := strings.Cut(group, "/")
		if !within || dc == own || !datacenterName(dc) || slices.Contains(list, dc) {
			continue
		}
		for _, at := range k.o.placesOf(dc) {
			if name, ok := at.service(group); ok && k.o.counts(name) {
				list = append(list, dc)
				break
			}
		}
	}
	return list
}

// placesOf are those of a datacenter.
func (o *Options) placesOf(datacenter string) (out []place) {
	for _, ns := range o.Namespaces {
		out = append(out, place{Datacenter: datacenter, Namespace: ns, Partition: o.Partition})
	}
	if len(out) == 0 {
		out = append(out, place{Datacenter: datacenter, Partition: o.Partition})
	}
	return out
}

// take starts to follow datacenters that are new. One that Consul knows no more stays as it was: nobody says whether it is
// gone or out of reach.
func (k *keeper) take(ctx context.Context, datacenters []string) {
	for _, dc := range datacenters {
		for _, at := range k.o.placesOf(dc) {
			if k.scopes[at] != nil {
				continue
			}
			sc := newScope(at)
			sc.before = k.marked(at)
			k.scopes[at] = sc
			k.start(ctx, func(ctx context.Context) { k.follow(ctx, k.namesOf(ctx, sc)) })
			k.start(ctx, func(ctx context.Context) { k.follow(ctx, k.restorationsOf(sc)) })
			k.start(ctx, func(ctx context.Context) { k.followChecks(ctx, sc, "critical", sc.critical) })
			k.start(ctx, func(ctx context.Context) { k.followChecks(ctx, sc, "warning", sc.warning) })
		}
	}
	k.placed, k.dirty = true, true
	k.crowd()
}
