package crd

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func TestSource(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, config.Gateway)
	c.create(gateway("a", 1, 80))
	c.create(gateway("b", 1, 0))
	out := c.run(New(Config{Cluster: c.kube}))
	want(t, out, "full, Gateway edge/a=1, Gateway edge/b=invalid (a port is a number from 1 to 65535, not 0)")

	c.update(gateway("b", 2, 81))
	want(t, out, "explicit, Gateway edge/b=2")

	onlyStatus := gateway("b", 2, 81)
	onlyStatus.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Reconciled"}}}
	c.update(onlyStatus)
	foreign := gateway("a", 1, 80)
	foreign.SetLabels(map[string]string{"istio.io/rev": "canary"})
	c.update(foreign)
	want(t, out, "explicit, Gateway edge/a")

	foreign.SetLabels(map[string]string{"istio.io/rev": "default"})
	c.update(foreign)
	want(t, out, "explicit, Gateway edge/a=1")

	c.delete(foreign)
	want(t, out, "explicit, Gateway edge/a")
}

// The annotations of kubectl are not part of an object, and others are.
func TestObject(t *testing.T) {
	t.Parallel()
	u := gateway("a", 7, 80)
	u.SetAnnotations(map[string]string{lastApplied: "{}", "x": "y"})
	info, _ := config.Info(config.Gateway)
	o, up := convert("kubernetes:east", info, u)
	if len(up.Items) != 1 {
		t.Fatalf("update %+v, want one object", up)
	}
	got := up.Items[0]
	if len(got.Annotations) != 1 || got.Annotations["x"] != "y" {
		t.Errorf("annotations %v, want x alone", got.Annotations)
	}
	if want := (config.Origin{Source: "kubernetes:east"}); got.Origin != want {
		t.Errorf("origin %+v, want %+v", got.Origin, want)
	}
	if got.Created.Year() != 2026 || got.Revision != "7" || o.generation != 7 || o.hash != got.Hash {
		t.Errorf("created %v, revision %q, %+v", got.Created, got.Revision, o)
	}
	_, up = convert("kubernetes:east", info, gateway("a", 8, 0))
	if p := up.Problems; len(p) != 1 || p[0].File != "" || p[0].Line != 0 || p[0].Field != "spec.servers[0].port.number" ||
		p[0].Object != "Gateway edge/a" {
		t.Errorf("problems %+v, want one of the port, without a place in a file", p)
	}
}

// A kind that alone cannot be read is unreadable, and the others work.
func TestUnreadableKind(t *testing.T) {
	t.Parallel()
	broken := apierrors.NewInternalError(errors.New("conversion webhook failed"))
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"forbidden": {forbidden("sidecars"), "cluster kubernetes:east does not allow ashored to list and watch " +
			"sidecars.networking.istio.io: give its account a role with that right…"},
		"failing": {broken, "cluster kubernetes:east: list and watch sidecars.networking.istio.io: " +
			"Internal error occurred: conversion webhook failed)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFakeCluster(t, config.Gateway, config.Sidecar)
			c.create(gateway("a", 1, 80))
			c.fail("list sidecars", tc.err)
			out := c.run(New(Config{Cluster: c.kube}))
			want(t, out, "full, Gateway edge/a=1")
			want(t, out, "explicit, sidecars.networking.istio.io=unreadable ("+tc.want)
			c.fail("list sidecars", nil)
			want(t, out, "explicit, sidecars.networking.istio.io")
		})
	}
}

// An API server that does not answer, or does not know who asks, is an outage of the source.
func TestOutageOfOneKind(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no answer":     errors.New("connection refused"),
		"unauthorized":  apierrors.NewUnauthorized("the token has expired"),
		"not available": apierrors.NewServiceUnavailable("it starts"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, k := newSyncer(t, config.Gateway)
			s.reported(k, err)
			b, _ := s.next()
			if got, want := describe(b), "down: "+err.Error(); got != want {
				t.Errorf("batch %s, want %s", got, want)
			}
		})
	}
}

// The source does not claim that there are no policies while it may not read them.
func TestForbiddenProtection(t *testing.T) {
	t.Parallel()
	s, k := newSyncer(t, config.AuthorizationPolicy)
	s.fullSent, k.known = false, false
	s.reported(k, forbidden("authorizationpolicies"))
	b, _ := s.next()
	if got, want := describe(b), "down: authorizationpolicies is forbidden: no role"; got != want {
		t.Errorf("batch %s, want %s", got, want)
	}
	s.listed(k, nil)
	s.reported(k, nil)
	if b, _ := s.next(); describe(b) != "full" {
		t.Errorf("batch %s, want a Full one", describe(b))
	}
}

// Policies that may no longer be read stay, and other kinds work.
func TestForbiddenProtectionLater(t *testing.T) {
	t.Parallel()
	s, k := newSyncer(t, config.AuthorizationPolicy)
	s.reported(k, forbidden("authorizationpolicies"))
	b, _ := s.next()
	want := "explicit, authorizationpolicies.security.istio.io=unreadable (authorizationpolicies is forbidden: no role)"
	if got := describe(b); got != want {
		t.Errorf("batch\n%s\nwant\n%s", got, want)
	}
	s.sent(b)
	if b, ok := s.next(); ok {
		t.Errorf("batch %s, want none", describe(b))
	}
	s.reported(k, errors.New("connection refused"))
	if b, _ := s.next(); describe(b) != "down: connection refused" {
		t.Errorf("batch %s, want an outage, in which the kind stays unreadable", describe(b))
	}
}

// Without any right, the source is down: it does not claim that there is nothing.
func TestForbidden(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, config.Gateway)
	c.fail("list gateways", forbidden("gateways"))
	out := c.run(New(Config{Cluster: c.kube}))
	want(t, out, "down: cluster kubernetes:east does not allow ashored to list and watch gateways.networking.istio.io…")
}

func TestOutage(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, config.Gateway)
	c.create(gateway("a", 1, 80))
	c.fail("all", errors.New("connection refused"))
	out := c.run(New(Config{Cluster: c.kube}))
	want(t, out, "down: cluster kubernetes:east: list and watch gateways.networking.istio.io: connection refused")
	c.fail("all", nil)
	want(t, out, "full, Gateway edge/a=1")
}

// Kinds that are installed later are found, and an old version is a warning.
func TestInstalledLater(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t)
	old := gateway("a", 1, 80)
	old.SetAPIVersion("networking.istio.io/v1beta1")
	c.create(old)
	out := c.run(New(Config{Cluster: c.kube}))
	want(t, out, "full")
	c.install(config.Gateway, 1)
	wantChanges(t, out, "Gateway edge/a=1, gateways.networking.istio.io (cluster kubernetes:east serves it only as "+
		"networking.istio.io/v1beta1: install the CRDs of a current Istio, which have networking.istio.io/v1)")
	c.create(gateway("a", 1, 80))
	c.install(config.Gateway, 0)
	want(t, out, "explicit, gateways.networking.istio.io")
}

// The objects of a kind stay when it is no longer served in a known version.
func TestNoLongerServed(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, config.Gateway, config.Sidecar)
	c.create(gateway("a", 1, 80))
	out := c.run(New(Config{Cluster: c.kube}))
	want(t, out, "full, Gateway edge/a=1")
	c.uninstall(config.Gateway)
	want(t, out, "explicit, gateways.networking.istio.io=unreadable (cluster kubernetes:east serves Gateway in no "+
		"version that ashored knows (v1, v1beta1, v1alpha3): its objects stay…")
	c.update(gateway("a", 2, 81))
	c.install(config.Gateway, 0)
	wantChanges(t, out, "Gateway edge/a=2, gateways.networking.istio.io")
}

// Objects of before a restart stay too when their kind is only served in an unknown version.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, config.Sidecar)
	c.serve(config.Gateway, "v9")
	out := c.run(New(Config{Cluster: c.kube}))
	want(t, out, "full")
	want(t, out, "explicit, gateways.networking.istio.io=unreadable (cluster kubernetes:east serves Gateway in no…")
	c.create(gateway("a", 1, 80))
	c.install(config.Gateway, 0)
	wantChanges(t, out, "Gateway edge/a=1, gateways.networking.istio.io")
}

// An API server that has just started forbids everything for a moment.
func TestLookupForbidden(t *testing.T) {
	t.Parallel()
	for refusals, text := range map[int]string{
		1: "full, Gateway edge/a=1",
		2: "down: cluster kubernetes:east does not allow ashored to look up kinds: bind the ClusterRole system:discovery…",
	} {
		t.Run(strconv.Itoa(refusals), func(t *testing.T) {
			t.Parallel()
			c := newFakeCluster(t, config.Gateway)
			c.create(gateway("a", 1, 80))
			c.refusals = refusals
			want(t, c.run(New(Config{Cluster: c.kube})), text)
		})
	}
}

// A kind that has no objects may be uninstalled: that is no problem.
func TestUninstalled(t *testing.T) {
	t.Parallel()
	s, k := newSyncer(t, config.Gateway)
	for range 2 {
		s.found(t.Context(), nil)
	}
	if b, ok := s.next(); ok || k.version != "" {
		t.Errorf("batch %s, version %q, want none", describe(b), k.version)
	}
}

// After a restart, objects of a kind that may not be read stay, also if that began long ago. If the
// cluster has no other objects, rule R4 retains them, and the reason is still that they cannot be read.
func TestForbiddenKindRestart(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]bool{"with other objects": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forbiddenKindRestart(t, others)
		})
	}
}

func forbiddenKindRestart(t *testing.T, others bool) {
	c := newFakeCluster(t, config.Gateway, config.Sidecar)
	if others {
		sidecar := gateway("s", 1, 80)
		sidecar.SetKind("Sidecar")
		sidecar.Object["spec"] = map[string]any{"egress": []any{map[string]any{"hosts": []any{"*/*"}}}}
		c.create(sidecar)
	}
	c.fail("list gateways", forbidden("gateways"))
	info, _ := config.Info(config.Gateway)
	src := New(Config{Cluster: c.kube})
	_, known := convert(src.Name(), info, gateway("a", 1, 80))
	m := feed.NewMerger(feed.Config[config.Key, *config.Object]{Settle: 2 * time.Second,
		KeyOf: func(o *config.Object) config.Key { return o.Key }}, []feed.SourceConfig{{Name: src.Name()}})
	now := time.Now()
	unreadable := update{Group: "gateways.networking.istio.io", Unreadable: true}
	m.Apply(batch{Source: src.Name(), Updates: []update{known, unreadable}}, now.Add(-time.Hour))
	out := c.run(src)
	for range 2 {
		m.Apply(<-out, now)
	}
	m.Expire(now.Add(time.Minute))
	if len(m.Items(known.Items[0].Key)) == 0 {
		t.Error("the Gateway is removed")
	}
	for _, p := range m.Problems(func(*config.Object) string { return "the cluster" }) {
		if p.Stale && !strings.Contains(p.Text, "gateways.networking.istio.io") {
			t.Errorf("problem %q does not name what cannot be read", p.Text)
		}
	}
}

// A kind counts as not installed after two lookups.
func TestNotFoundOnce(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t)
	info, _ := config.Info(config.Gateway)
	s := &syncer{src: New(Config{Cluster: c.kube}), cluster: c.kube, kinds: []*kind{{KindInfo: info}}}
	for _, want := range []bool{false, true} {
		s.found(t.Context(), nil)
		if got := s.complete(); got != want {
			t.Errorf("complete is %v, want %v", got, want)
		}
	}
}

// newSyncer returns a syncer that has sent the Full batch. It watches a kind, and has another one
// that is readable.
func newSyncer(t *testing.T, watched config.Kind) (*syncer, *kind) {
	c := newFakeCluster(t)
	s := &syncer{src: New(Config{Cluster: c.kube}), cluster: c.kube, fullSent: true,
		pending: map[string]update{}, lost: map[string]update{}}
	for _, name := range []config.Kind{watched, config.Sidecar} {
		info, _ := config.Info(name)
		s.kinds = append(s.kinds, &kind{KindInfo: info, version: info.Versions[0], known: true})
	}
	return s, s.kinds[0]
}
