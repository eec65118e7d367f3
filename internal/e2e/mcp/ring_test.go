package mcp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// The members of a ring: each takes from the next one, and the last from the first.
const members = 3

// ring is three that take from one another. Each has its files after what it takes, and before that
// the sources of more.
func ring(t *testing.T, settings, options string, file func(i int) string, more ...string) []*harness.Mesh {
	t.Helper()
	var subnets []string
	for range members {
		subnets = append(subnets, harness.FreeSubnet(t))
	}
	out := make([]*harness.Mesh, members)
	for i := range out {
		next := fmt.Sprintf("{name: next, kind: mcp, address: %q, plaintext: true%s}", subnets[(i+1)%members]+"1:15010",
			options)
		out[i] = harness.New(t, map[string]string{"a.yaml": file(i)}, harness.On(subnets[i]),
			harness.Sources(append(more, next)...), harness.Further(settings))
	}
	for i, m := range out {
		harness.Eventually(t, fmt.Sprintf("member %d is ready", i), func() error {
			if s, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{}); err != nil || !s.Ready {
				return fmt.Errorf("it waits for %v (%v)", s.Waiting, err)
			}
			return nil
		})
	}
	return out
}

// contexts is how many each of them has built.
func contexts(t *testing.T, all []*harness.Mesh) (out [members]int) {
	t.Helper()
	for i, m := range all {
		s, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
		if err != nil {
			t.Fatal(err)
		}
		out[i] = s.Config.Contexts
	}
	return out
}

// wantRest waits until nothing changes any more, at any of them.
func wantRest(t *testing.T, all []*harness.Mesh) {
	t.Helper()
	before, since := contexts(t, all), time.Now()
	harness.Eventually(t, "nothing changes for three seconds", func() error {
		time.Sleep(100 * time.Millisecond)
		now := contexts(t, all)
		if now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) < 3*time.Second {
			return fmt.Errorf("%v contexts were built, the last %s ago", now, time.Since(since).Round(time.Millisecond))
		}
		return nil
	})
}

// wantFrom waits until a ServiceEntry is in use, from a source and with an address.
func wantFrom(t *testing.T, m *harness.Mesh, namespace, name, source, address string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s/%s of %s with %s", namespace, name, source, address), func() error {
		objects, err := admin.Send(context.Background(), m.Admin, admin.CallObjects, admin.ObjectQuery{Kind: "ServiceEntry", Namespace: namespace, Name: name})
		if err != nil {
			return err
		}
		if o := objects[0]; o.Origin.Source != source || !strings.Contains(string(o.Spec), fmt.Sprintf("%q", address)) {
			return fmt.Errorf("it is of %s: %s", o.Origin.Source, o.Spec)
		}
		return nil
	})
}

// one is the ServiceEntry shop/x with an address.
func one(address string) string {
	return strings.ReplaceAll(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: x, namespace: shop}
spec:
  hosts: [x.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: ADDRESS}]
`, "ADDRESS", address)
}

// Three that read one Consul and relay its services to one another reach a stable state, and
// changes of Consul reach all.
func TestRingOfServices(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	client, err := api.NewClient(&api.Config{Address: agent.Address})
	if err != nil {
		t.Fatal(err)
	}
	register := func(address string) {
		t.Helper()
		if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "cweb-1", Name: "cweb",
			Address: address, Port: 8080}); err != nil {
			t.Fatal(err)
		}
	}
	register("10.0.0.1")
	all := ring(t, "mcp: {readers: [anybody], services: true}", ", required: false",
		func(int) string { return one("10.0.9.9") },
		fmt.Sprintf("{name: cns, kind: consul, address: %q, namespace: default}", "http://"+agent.Address))
	for _, address := range []string{"10.0.0.1", "10.0.0.2"} {
		register(address)
		for _, m := range all {
			wantFrom(t, m, "default", "registry-cweb.service.consul", "mcp:next", address)
		}
		wantRest(t, all)
		for _, m := range all {
			wantFrom(t, m, "default", "registry-cweb.service.consul", "mcp:next", address)
		}
	}
}

// The health of an instance is that of our own Consul, also while another control plane that relays
// it is down.
func TestHealthBesideRelay(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	client, err := api.NewClient(&api.Config{Address: agent.Address})
	if err != nil {
		t.Fatal(err)
	}
	for i, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: fmt.Sprint("cweb-", i), Name: "cweb",
			Address: address, Port: 8080,
			Check: &api.AgentServiceCheck{CheckID: fmt.Sprint("c", i), TTL: "1h", Status: "passing"}}); err != nil {
			t.Fatal(err)
		}
	}
	all := ring(t, "mcp: {readers: [anybody], services: true}", ", required: false",
		func(int) string { return one("10.0.9.9") },
		fmt.Sprintf("{name: cns, kind: consul, address: %q, namespace: default}", "http://"+agent.Address))
	a, b := all[0], all[1]
	wantFrom(t, a, "default", "registry-cweb.service.consul", "mcp:next", "10.0.0.1")
	wants := func(want string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("cweb is %q", want), func() error {
			got := ""
			services, err := admin.Send(t.Context(), a.Admin, admin.CallServices,
				admin.ServiceQuery{Host: "cweb.service.consul", Endpoints: true})
			for _, s := range services {
				for _, ep := range s.Endpoints {
					got += fmt.Sprintf("%s %s by %s, ", ep.Address, ep.Health, ep.From.Source)
				}
			}
			if got != want || err != nil {
				return fmt.Errorf("it is %q (%v)", got, err)
			}
			return nil
		})
	}
	wants("10.0.0.1 healthy by consul:cns, 10.0.0.2 healthy by consul:cns, 10.0.0.3 healthy by consul:cns, ")
	b.Ashored.Kill()
	if err := client.Agent().UpdateTTL("c0", "", "critical"); err != nil {
		t.Fatal(err)
	}
	wants("10.0.0.1 unhealthy by consul:cns, 10.0.0.2 healthy by consul:cns, 10.0.0.3 healthy by consul:cns, ")
}
