package push_test

import (
	"fmt"
	"testing"

	"github.com/ashore-mesh/ashore/push"
)

// A router listens where its own service maps the port of a server: of several services the oldest counts.
func TestGatewayPorts(t *testing.T) {
	t.Parallel()
	gateway := func(port string) string {
		return `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {selector: {app: edge}, servers: [{port: {` + port + `, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
`
	}
	service := func(name, namespace, made, port, endpoint string) string {
		return `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ` + name + `, namespace: ` + namespace + `, creationTimestamp: "` + made + `"}
spec:
  hosts: [` + name + `.example]
  ports: [{` + port + `, name: web, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{` + endpoint + `}]
---
`
	}
	const old, young, own = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z", "address: 10.0.0.9"
	to8080 := service("a", "edge", young, "number: 80, targetPort: 8080", own)
	for name, tc := range map[string]struct {
		text string
		want uint32
	}{
		"no service":                   {gateway("number: 80"), 80},
		"a service":                    {gateway("number: 80") + to8080, 8080},
		"another port":                 {gateway("number: 81") + to8080, 81},
		"the port of the endpoint":     {gateway("number: 80") + service("a", "edge", old, "number: 80", own+", ports: {web: 8081}"), 8081},
		"another workload":             {gateway("number: 80") + service("a", "edge", old, "number: 80, targetPort: 8080", "address: 10.0.0.8"), 80},
		"another namespace":            {gateway("number: 80") + service("a", "shop", old, "number: 80, targetPort: 8080", own), 80},
		"an older service":             {gateway("number: 80") + to8080 + service("b", "edge", old, "number: 80, targetPort: 8082", own), 8082},
		"an older one on its own port": {gateway("number: 80") + to8080 + service("b", "edge", old, "number: 80", own), 80},
		"a targetPort of the server":   {gateway("number: 80, targetPort: 8083") + to8080, 8083},
	} {
		c := push.Build(nil, read(t, tc.text))
		n := node("edge", "10.0.0.9", "app=edge")
		n.Type = push.Router
		var got []uint32
		for _, s := range c.Classify(n).Gateways.Items() {
			got = append(got, s.Port)
		}
		if fmt.Sprint(got) != fmt.Sprint([]uint32{tc.want}) {
			t.Errorf("%s: it listens on %v, want %d", name, got, tc.want)
		}
	}
}
