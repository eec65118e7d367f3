package services

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// fixed is a source of objects that do not change.
type fixed []*config.Object

func (fixed) Name() string { return "files" }

func (f fixed) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	b := feed.Batch[*config.Object]{Source: "files", Full: true}
	for _, o := range f {
		b.Updates = append(b.Updates, feed.Update[*config.Object]{Group: o.Key.String(), Items: []*config.Object{o}})
	}
	select {
	case out <- b:
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// A Service has its Pods and the machine that it selects, and a ServiceEntry has Pods.
func TestSelection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		object := func(kind config.Kind, name string) config.Key {
			return config.Key{Kind: kind, Namespace: "shop", Name: name}
		}
		app := map[string]string{"app": "web"}
		objects := fixed{
			{Key: object(config.WorkloadEntry, "vm"), Spec: &networking.WorkloadEntry{Address: "10.9.0.1", Labels: app,
				ServiceAccount: "web"}},
			{Key: object(config.ServiceEntry, "api"), Spec: &networking.ServiceEntry{Hosts: []string{"api.example.com"},
				Ports:            []*networking.ServicePort{{Number: 81, Name: "http"}},
				Resolution:       networking.ServiceEntry_STATIC,
				WorkloadSelector: &networking.WorkloadSelector{Labels: app}}},
		}
		r := receive(t, webService(), webSlice(true), webPod())
		r.end() // the assembler runs the source
		r.source = New(Config{Cluster: r.source.cluster})
		contexts := make(chan *push.Context, 100)
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Objects: []push.Source[*config.Object]{{Source: objects}},
				Services: []push.Source[registry.Instances]{{Source: r.source}}},
			Deriver: entry.New(nil, r.source), Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"},
			Publish: func(c *push.Context, _ push.Changes) { contexts <- c },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		addresses := func(host string) []string {
			time.Sleep(time.Minute)
			var c *push.Context
			for len(contexts) > 0 {
				c = <-contexts
			}
			if c == nil {
				t.Fatal("nothing was published")
			}
			contexts <- c
			var out []string
			for _, ep := range c.Inputs().Endpoints.At(registry.Key{Host: host, Namespace: "shop"}).All() {
				out = append(out, ep.Address)
			}
			slices.Sort(out)
			return out
		}
		const web, api = "web.shop.svc.cluster.local", "api.example.com"
		want := func(step, host string, want ...string) {
			t.Helper()
			if got := addresses(host); !slices.Equal(got, want) {
				t.Errorf("%s: %s has endpoints %q, want %q", step, host, got, want)
			}
		}
		want("at first", web, "10.0.0.1", "10.9.0.1")
		want("at first", api, "10.0.0.1", "10.9.0.1")
		if err := r.client.CoreV1().Pods("shop").Delete(ctx, "web-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want("without the Pod", web, "10.9.0.1")
		want("without the Pod", api, "10.9.0.1")
		if err := r.client.CoreV1().Services("shop").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want("without the Service", web)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.running.Wait()
	})
}
