package main

import (
	"context"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// fakeServices returns one service without endpoints, and one of two sources.
func fakeServices() []admin.Service {
	files := admin.Place{Source: "files", Object: "ServiceEntry shop/web", File: "/etc/a.yaml", Line: 3}
	dc1 := admin.Place{Source: "dc1", Object: "Consul service web"}
	return []admin.Service{
		{Host: "db.service.consul", Namespace: "shop", Ports: []admin.ServicePort{{Number: 5432, Protocol: "UNKNOWN"}}, Resolution: "STATIC", Location: "MESH_INTERNAL",
			Addresses: []string{"240.240.0.9",
				"2001:2::9"}, Sources: []admin.ServiceSource{{Place: admin.Place{Source: "dc1",
				Object: "Consul service db"}}}},
		{Host: "web.service.consul", Namespace: "shop", Ports: []admin.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}, {Number: 90, Protocol: "TCP"}}, Resolution: "STATIC", Location: "MESH_EXTERNAL",
			ExportTo: []string{"."}, Health: admin.HealthCount{Healthy: 1, Draining: 1},
			Sources: []admin.ServiceSource{{Place: files, Endpoints: 1}, {Place: dc1, Endpoints: 1}},
			Endpoints: []admin.Endpoint{
				{Address: "10.0.0.1", Ports: []admin.EndpointPort{{Service: 80, Number: 8080}, {Service: 90, Number: 90}}, Health: "healthy", Identity: "spiffe://cluster.local/ns/shop/sa/web", ServiceAccount: "web",
					Namespace: "shop", Workload: "vm-1", TLSMode: "istio", Locality: "eu/a", Weight: 1, Labels: map[string]string{"v": "1", "app": "web"}, From: files},
				{Address: "10.0.0.2", Ports: []admin.EndpointPort{{Service: 80, Number: 80}, {Service: 90, Number: 90}}, Health: "draining", Namespace: "shop", Weight: 5, From: dc1},
			}},
	}
}

func (*fake) Services(_ context.Context, q admin.ServiceQuery) ([]admin.Service, error) {
	out := []admin.Service{}
	for _, s := range fakeServices() {
		if (q.Host == "" || q.Host == s.Host) && (q.Namespace == "" || q.Namespace == s.Namespace) {
			if !q.Endpoints {
				s.Endpoints = nil
			}
			out = append(out, s)
		}
	}
	if len(out) == 0 && q.Host != "" {
		return nil, admin.NewError(admin.ErrNotFound, "the mesh knows no service %q", q.Host)
	}
	return out, nil
}

func TestGetServices(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	for args, want := range map[string]string{
		"get services": `NAMESPACE  HOST                PORTS           ADDRESS                HEALTHY  FROM
shop       db.service.consul   5432/?          240.240.0.9,2001:2::9  0/0      dc1
shop       web.service.consul  80/HTTP,90/TCP  -                      1/2      files,dc1
`,
		"get svc web.service.consul -o wide": `NAMESPACE  HOST                PORTS           ADDRESS  HEALTHY  FROM       RESOLUTION  LOCATION       EXPORTED TO  READ FROM
shop       web.service.consul  80/HTTP,90/TCP  -        1/2      files,dc1  STATIC      MESH_EXTERNAL  .            ServiceEntry shop/web (/etc/a.yaml:3),Consul service web
`,
		"get endpoints": `NAMESPACE  HOST                ADDRESS   PORTS       HEALTH    IDENTITY  LOCALITY  FROM
shop       web.service.consul  10.0.0.1  80:8080,90  healthy   shop/web  eu/a      files
shop       web.service.consul  10.0.0.2  80,90       draining  -         -         dc1
`,
		"get ep shop/web.service.consul -o wide": `NAMESPACE  HOST                ADDRESS   PORTS       HEALTH    IDENTITY  LOCALITY  FROM   WORKLOAD   NETWORK  WEIGHT  TLS    LABELS       READ FROM
shop       web.service.consul  10.0.0.1  80:8080,90  healthy   shop/web  eu/a      files  shop/vm-1  -        1       istio  app=web,v=1  ServiceEntry shop/web (/etc/a.yaml:3)
shop       web.service.consul  10.0.0.2  80,90       draining  -         -         dc1    shop/-     -        5       -      -            Consul service web
`,
		"get services web -o name":          "service shop/web.service.consul\n",
		"get services Web.Service -o name":  "service shop/web.service.consul\n",
		"get services shop/db -o name":      "service shop/db.service.consul\n",
		"get endpoints web -n shop -o name": "endpoint web.service.consul 10.0.0.1\nendpoint web.service.consul 10.0.0.2\n",
		"get services -n other":             "none\n",
		"get endpoints -n other":            "none\n",
		"get endpoints -n other -o json":    "[]\n",
		"get services -n other -o json":     "[]\n",
		"get services -o name":              "service shop/db.service.consul\nservice shop/web.service.consul\n",
	} {
		if code, out, errOut := result(t, append([]string{"--socket", socket},
			strings.Fields(args)...)...); code != 0 || out != want {
			t.Errorf("%s: %d, got\n%s%s\nwant\n%s", args, code, out, errOut, want)
		}
	}
	_, out, _ := result(t, "--socket", socket, "get", "endpoints", "-o", "json")
	if !strings.Contains(out, `"host": "web.service.consul"`) || !strings.Contains(out, `"source": "dc1"`) {
		t.Errorf("for programs:\n%s", out)
	}
	for args, want := range map[string]string{
		"get services --store":       "--store is for objects",
		"get services a/b -n c":      `namespace "a" in the name, and "c" in -n`,
		"get services nobody.consul": `the mesh knows no service "nobody.consul"`,
		"get services we":            `the mesh knows no service "we"`,
		"get services other/web":     `the mesh knows no service "web"`,
	} {
		if code, _, errOut := result(t, append([]string{"--socket", socket}, strings.Fields(args)...)...); code == 0 ||
			!strings.Contains(errOut, want) {
			t.Errorf("%s: %d, %q; want %q", args, code, errOut, want)
		}
	}
}

// A port that is not served is named beside the health of the endpoint.
func TestEndpointHealth(t *testing.T) {
	t.Parallel()
	for want, ep := range map[string]admin.Endpoint{
		"healthy":                        {Health: "healthy"},
		"healthy, not served: 9000,9001": {Health: "healthy", NotServed: []uint32{9000, 9001}},
		"unhealthy":                      {Health: "unhealthy", NotServed: []uint32{9000}},
	} {
		if got := endpointHealth(ep); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
