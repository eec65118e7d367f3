package push_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// complaining is a Deriver that says about every ServiceEntry what stands in its first host. It never has
// anything pending.
type complaining struct{ last push.Objects }

func (*complaining) Name() string { return "complaining" }

func (c *complaining) Derive(_ context.Context, objects push.Objects) feed.Batch[registry.Instances] {
	b := feed.Batch[registry.Instances]{Source: c.Name(), Full: c.last == push.Objects{}}
	for ch := range objects.Diff(c.last) {
		if ch.Key.Kind != config.ServiceEntry {
			continue
		}
		u := feed.Update[registry.Instances]{Group: ch.Key.Name}
		if ch.New != nil {
			u.Problems = []feed.Problem{{Severity: feed.Warning, Object: ch.Key.Name, Text: ch.New.Spec.(*networking.ServiceEntry).Hosts[0]}}
		}
		b.Updates = append(b.Updates, u)
	}
	c.last = objects
	return b
}

func (*complaining) Pending() bool { return false }

func (*complaining) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// What no source knows of is told once when it appears and once when it is gone, however often the sources say
// the same, and wherever in its file it moves to.
func TestAssemblerReports(t *testing.T) {
	t.Parallel()
	object := func(kind config.Kind, name, source string, line int, spec string) *config.Object {
		o := &config.Object{Key: config.Key{Kind: kind, Namespace: "a", Name: name}, Origin: config.Origin{Source: source, File: source + ".yaml", Line: line}}
		switch kind {
		case config.Gateway:
			o.Spec = &networking.Gateway{Servers: []*networking.Server{{Port: &networking.Port{Number: 80, Protocol: spec}}}}
		case config.ServiceEntry:
			o.Spec = &networking.ServiceEntry{Hosts: []string{spec}}
		default:
			o.Spec = &networking.WorkloadEntry{Address: spec}
		}
		o.Hash = config.HashOf(o)
		return o
	}
	x := func(source string, line int) *config.Object {
		return object(config.WorkloadEntry, "x", source, line, "x")
	}
	gateway := func(name, protocol string) *config.Object { return object(config.Gateway, name, "two", 9, protocol) }
	entry := func(says string) *config.Object { return object(config.ServiceEntry, "e", "two", 5, says) }
	steps := []struct {
		name       string
		one, two   []*config.Object
		told, over []string
	}{
		{"nothing", nil, nil, nil, nil},
		{"a clash", []*config.Object{x("one", 1)}, []*config.Object{x("two", 1)}, []string{"two.yaml:1: WorkloadEntry a/x: is defined in one.yaml:1 of one too, and that one is in use: remove one of the two"}, nil},
		{"the same again", []*config.Object{x("one", 1)}, []*config.Object{x("two", 1)}, nil, nil},
		{"moved", []*config.Object{x("one", 7)}, []*config.Object{x("two", 8)}, nil, nil},
		{"something else", []*config.Object{x("one", 7)}, []*config.Object{x("two", 8), entry("first")}, []string{"e: first"}, nil},
		{"says otherwise", []*config.Object{x("one", 7)}, []*config.Object{x("two", 8), entry("second")}, []string{"e: second"}, []string{"e: first"}},
		{
			"mended", []*config.Object{x("one", 7)}, []*config.Object{entry("second")}, nil,
			[]string{"two.yaml:8: WorkloadEntry a/x: is defined in one.yaml:7 of one too, and that one is in use: remove one of the two"},
		},
		{"all is gone", nil, nil, nil, []string{"e: second"}},
		{"gateways", nil, []*config.Object{gateway("g", "HTTP"), gateway("h", "TCP")}, []string{
			"two.yaml:9: Gateway a/h spec.servers[0]: the server on port 80 is left out on every proxy, since the other selects all that this one does, because " +
				"spec.servers[0] of Gateway a/g (two.yaml:9) listens there and comes first, by age or by name, and TCP and HTTP cannot share a port: " +
				"choose another port or other hosts, or select different proxies",
		}, nil},
	}
	synctest.Test(t, func(t *testing.T) {
		one, two := newScripted[*config.Object]("one"), newScripted[*config.Object]("two")
		var told, over []string
		texts := func(problems []feed.Problem) (out []string) {
			for _, p := range problems {
				out = append(out, p.String())
			}
			return out
		}
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Objects: []config.Source{one, two}}, Derive: &complaining{}, Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {},
			Report: func(appeared, gone []feed.Problem) {
				told, over = append(told, texts(appeared)...), append(over, texts(gone)...)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		for _, s := range steps {
			told, over = nil, nil
			one.say <- feed.Batch[*config.Object]{Full: true, Updates: []feed.Update[*config.Object]{{Group: "g", Items: s.one}}}
			two.say <- feed.Batch[*config.Object]{Full: true, Updates: []feed.Update[*config.Object]{{Group: "g", Items: s.two}}}
			time.Sleep(time.Second)
			synctest.Wait()
			if d := cmp.Diff(s.told, told); d != "" {
				t.Errorf("%s: told (-want +got):\n%s", s.name, d)
			}
			if d := cmp.Diff(s.over, over); d != "" {
				t.Errorf("%s: over (-want +got):\n%s", s.name, d)
			}
		}
		if p := a.Status().Problems; len(p) != 1 || p[0].Object != "Gateway a/h" {
			t.Errorf("status shows %v, want the problem of the Gateways", p)
		}
		cancel()
		<-done
	})
}
