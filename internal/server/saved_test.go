package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// What is saved in the state folder is there after a restart. A record that cannot be read is
// logged, and the others are used.
func TestSavedState(t *testing.T) {
	t.Parallel()
	home := openHome(t)
	first := (&Server{home: home, log: testlog.New(t)}).openSaved(t.Context())
	if saved := first.content; len(saved.Objects)+len(saved.Services)+len(first.problems()) > 0 {
		t.Fatalf("a new state folder has %+v, problems %v", saved, first.problems())
	}
	var objects []feed.SavedGroup[*config.Object]
	for _, name := range []string{"web", "db"} {
		o := config.Parse(name+".yaml", fmt.Appendf(nil, entryFile, name)).Objects[0]
		objects = append(objects, feed.SavedGroup[*config.Object]{Source: "files", Group: name + ".yaml",
			Items: []feed.SavedItem[*config.Object]{{Item: o}}})
	}
	service := registry.Instances{Service: &registry.Service{Key: registry.Key{Host: "db.consul", Namespace: "shop"},
		Ports: []registry.Port{{Number: 80}}}, Endpoints: &registry.EndpointList{}}
	first.save(push.Saved{
		Objects: objects,
		Services: []feed.SavedGroup[registry.Instances]{{Source: "consul:dc", Group: "db",
			Items: []feed.SavedItem[registry.Instances]{{Item: service}}}},
	})
	ended, end := context.WithCancel(t.Context())
	end() // the writers save what is left
	if err := first.objects.Run(ended); err != nil {
		t.Fatal(err)
	}
	if err := first.services.Run(ended); err != nil {
		t.Fatal(err)
	}

	second := (&Server{home: home, log: testlog.New(t)}).openSaved(t.Context())
	saved := second.content
	if len(saved.Objects) != 2 || len(saved.Services) != 1 ||
		saved.Services[0].Items[0].Item.Service.Host != "db.consul" || len(second.problems()) > 0 {
		t.Errorf("got %+v, problems %v; want two objects and a service", saved, second.problems())
	}

	all, err := home.LoadGroups(t.Context(), "config")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range all {
		if bytes.Contains(content, []byte("web.yaml")) {
			if err := home.SaveGroups(t.Context(), "config", map[string][]byte{name: []byte("{")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var log bytes.Buffer
	third := (&Server{home: home, log: hclog.New(&hclog.LoggerOptions{Output: &log})}).openSaved(t.Context())
	saved = third.content
	if len(saved.Objects) != 1 || saved.Objects[0].Group != "db.yaml" || len(saved.Services) != 1 {
		t.Errorf("beside an unreadable record there is %+v, want the others", saved)
	}
	if !strings.Contains(log.String(), "cannot be read") {
		t.Errorf("the log has %s", &log)
	}
}

const entryFile = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`
