package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Sources in Consul are added, changed and removed by a reload of the settings. No call fails, and
// endpoints that a changed source no longer has are removed.
func TestMeshReload(t *testing.T) {
	t.Parallel()
	one, two := testconsul.Start(t, nil), testconsul.Start(t, nil)
	c := newCatalog(t, one, "")
	source := func(name, address, more string) string {
		return fmt.Sprintf("{name: %s, kind: consul, address: %q, namespace: shop%s}", name, address, more)
	}
	plain := source("dc1", "http://"+one.Address, "")
	m := harness.New(t, map[string]string{"mesh.yaml": meshFiles}, harness.Secure(""), harness.Sources(plain))
	serves(t, m, c, "web-1", "1")
	serves(t, m, c, "web-2", "2")
	ip := m.IP()
	harness.NewBackend(t, "db", fmt.Sprintf("%s:%d", ip, servicePort))
	newCatalog(t, two, "").put("db-1", ip, servicePort, "passing", said("protocol", "http"))
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(servicePort)
	call, db := harness.Request{Host: "web.service.consul",
		Header: map[string]string{"want": "1"}}, harness.Request{Host: "db.service.consul"}
	second := harness.Request{Host: call.Host, Header: map[string]string{"want": "2"}}
	client.Want(t, "version 2", second, harness.From("web-2"))
	client.Want(t, "version 1", call, harness.From("web-1"))
	load := harness.StartCalls(t, client, call, 5*time.Millisecond)

	t.Log("one that comes")
	other := source("dc2", "http://"+two.Address, "")
	m.Reload(plain, other)
	client.Want(t, "what it knows", db, harness.From("db"))

	t.Log("one that is to know less, and all again, asked by TLS")
	less := source("dc1", "http://"+one.Address, `, filter: '"version=1" in Service.Tags'`)
	secure := source("dc1", "https://"+one.Secure, fmt.Sprintf(", tls: {caFile: %s}", one.CAFile))
	for range 5 {
		m.Reload(less, other)
		client.Want(t, "version 2, which is filtered", second, harness.Status(503))
		m.Reload(secure, other)
		client.Want(t, "version 2", second, harness.From("web-2"))
	}

	t.Log("one that goes, and one that is asked where nobody answers")
	two.Kill()
	away := source("dc1", "http://"+two.Address, "")
	m.Reload(away)
	wantSource(t, m, "consul:dc1", "cannot be reached")
	client.Want(t, "version 2, while nobody can be asked", second, harness.From("web-2"))

	t.Log("as it was")
	m.Reload(plain)
	wantSource(t, m, "consul:dc1", "")
	client.Want(t, "what the one that went knew", db, harness.Status(503))
	client.Want(t, "version 2", second, harness.From("web-2"))
	load.Stop()
	load.Clean(t, 20)
}
