package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// Resources as Envoy has them, in protobuf's JSON.
const (
	ruledCluster = `{"@type":"x","name":"outbound|80|v1|db.example","type":"EDS","metadata":{"filterMetadata":{"istio":
		{"config":"/apis/networking.istio.io/v1/namespaces/shop/destination-rule/db","default_original_port":80}}}}`
	passthrough  = `{"name":"PassthroughCluster","type":"ORIGINAL_DST"}`
	httpListener = `{"name":"0.0.0.0_80","address":{"socketAddress":{"address":"0.0.0.0","portValue":80}},
		"additionalAddresses":[{"address":{"socketAddress":{"address":"::","portValue":80}}}],
		"filterChains":[{"filterChainMatch":{"transportProtocol":"raw_buffer","applicationProtocols":["http/1.1","h2c"]},
		"filters":[{"name":"x","typedConfig":{"@type":"type.googleapis.com/a.HttpConnectionManager","rds":{"routeConfigName":"80"}}}]}],
		"defaultFilterChain":{"filters":[{"typedConfig":{"@type":"type.googleapis.com/a.TcpProxy","cluster":"PassthroughCluster"}}]}}`
	tcpListener = `{"name":"10.0.0.9_90","address":{"socketAddress":{"address":"10.0.0.9","portValue":90}},"filterChains":[
		{"filterChainMatch":{"serverNames":["db.example"],"destinationPort":90,"prefixRanges":[{"addressPrefix":"10.0.0.0","prefixLen":8}]},
		"filters":[{"typedConfig":{"@type":"type.googleapis.com/a.TcpProxy","weightedClusters":{"clusters":[{"name":"a"},{"name":"b"}]}}}]},
		{"filterChainMatch":{"destinationPort":91},"filters":[{"typedConfig":{"@type":"a.HttpConnectionManager",
		"routeConfig":{"virtualHosts":[{"routes":[{"match":{"prefix":"/"}}]}]}}}]}]}`
	routes = `{"name":"80","virtualHosts":[{"name":"db:80","domains":["db","db.shop","db:80"],"routes":[
		{"match":{"path":"/a"},"metadata":{"filterMetadata":{"istio":{"config":"/apis/networking.istio.io/v1/namespaces/shop/virtual-service/db"}}}},
		{"match":{"safeRegex":{"regex":".*"}}}]},{"name":"empty","domains":["x"]}]}`
	endpoints = `{"clusterName":"a","endpoints":[{"locality":{"region":"eu","zone":"a"},"lbEndpoints":[
		{"endpoint":{"address":{"socketAddress":{"address":"10.0.0.1","portValue":80}}},"healthStatus":"UNHEALTHY"},
		{"endpoint":{"address":{"socketAddress":{"address":"10.0.0.2","portValue":80}}}}]}]}`
)

func (*fake) Dump(_ context.Context, q admin.DumpRequest) (admin.Dump, error) {
	if q.Proxy != "web-1.shop" {
		return admin.Dump{}, admin.NewError(admin.ErrNotFound, "no proxy %s", q.Proxy)
	}
	root, err := ca.NewRoot("test", time.Hour, ca.NewKey(), time.Unix(1<<31, 0))
	if err != nil {
		return admin.Dump{}, err
	}
	chain := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Root.Raw}))
	out := admin.Dump{Proxy: q.Proxy}
	for _, t := range []struct{ name, resource, body string }{
		{"cds", "outbound|80|v1|db.example", ruledCluster}, {"cds", "PassthroughCluster", passthrough},
		{"lds", "0.0.0.0_80", httpListener}, {"lds", "10.0.0.9_90", tcpListener}, {"rds", "80", routes}, {"eds", "a", endpoints}, {"eds", "none", `{"clusterName":"none"}`},
		{"sds", "cert", `{"name":"cert","tlsCertificate":{"certificateChain":{"inlineBytes":"` + chain + `"}}}`},
		{"sds", "roots", `{"name":"roots","validationContext":{"trustedCa":{"inlineBytes":"` + chain + `"}}}`},
		{"ecds", "f", `{"name":"f","typedConfig":{"@type":"type.googleapis.com/envoy.RBAC"}}`},
		{"nds", "", `{"table":{}}`},
	} {
		if q.Type != "" && q.Type != t.name {
			continue
		}
		if n := len(out.Types); n == 0 || out.Types[n-1].Type != t.name {
			out.Types = append(out.Types, admin.DumpType{Type: t.name})
		}
		last := &out.Types[len(out.Types)-1]
		last.Resources = append(last.Resources, admin.DumpResource{Name: t.resource, Version: "1", Bytes: 9, Body: json.RawMessage(t.body)})
	}
	return out, nil
}

// Tables have istioctl's columns, and flags select rows.
func TestProxyConfig(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	const clusters = "SERVICE FQDN  PORT  SUBSET  DIRECTION  TYPE  DESTINATION RULE\ndb.example    80    v1      outbound   EDS   db.shop\n"
	for args, want := range map[string]string{
		"cluster": `SERVICE FQDN        PORT  SUBSET  DIRECTION  TYPE          DESTINATION RULE
db.example          80    v1      outbound   EDS           db.shop
PassthroughCluster  -     -       -          ORIGINAL_DST  -
`,
		"clusters --fqdn db": clusters, "c --port 80 --subset v --direction OUTBOUND -o short": clusters,
		"listener": `ADDRESSES   PORT  MATCH                                         DESTINATION
0.0.0.0,::  80    Trans: raw_buffer; App: http/1.1,h2c          Route: 80
0.0.0.0,::  80    ALL                                           PassthroughCluster
10.0.0.9    90    SNI: db.example; Addr: 10.0.0.0/8:90          Cluster: a, b
10.0.0.9    90    Addr: *:91                                    Inline Route: /*
`,
		"l --address :: --type http+tcp": "ADDRESSES   PORT  MATCH                                 DESTINATION\n" +
			"0.0.0.0,::  80    Trans: raw_buffer; App: http/1.1,h2c  Route: 80\n0.0.0.0,::  80    ALL                                   PassthroughCluster\n",
		"route": `NAME  VHOST NAME  DOMAINS              MATCH     VIRTUAL SERVICE
80    db:80       db, db.shop, + 1 more  /a        db.shop
80    db:80       db, db.shop, + 1 more  regex .*  -
80    empty       x                    /*        404
`,
		"endpoint --status unhealthy":                 "ENDPOINT     STATUS     LOCALITY  CLUSTER\n10.0.0.1:80  UNHEALTHY  eu/a      a\n",
		"ep --address 10.0.0.2 --port 80 --cluster a": "ENDPOINT     STATUS   LOCALITY  CLUSTER\n10.0.0.2:80  HEALTHY  eu/a      a\n",
		"ecds":                         "ECDS NAME  TYPE\nf          envoy.RBAC\n",
		"nds":                          "NAME  VERSION  BYTES\n-     1        9\n",
		"cluster --name x -o yaml":     "",
		"endpoint --cluster a -o json": "[\n  {",
		"all --port 90":                `SERVICE FQDN`,
	} {
		code, out, errOut := result(t, append([]string{"--socket", socket, "pc"}, append(strings.Fields(args), "web-1.shop")...)...)
		switch {
		case want == "":
			if code == 0 || !strings.Contains(errOut, "has no such resource") {
				t.Errorf("%s: %d, %s%s", args, code, out, errOut)
			}
		case code != 0 || strings.HasSuffix(want, "\n") && squeeze(out) != squeeze(want):
			t.Errorf("%s: exit code %d %s, -want +got:\n%s", args, code, errOut, cmp.Diff(want, out))
		}
	}
	if _, out, _ := result(t, "--socket", socket, "pc", "endpoint", "web-1.shop", "-o", "json"); strings.Count(out, `"clusterName"`) != 2 {
		t.Errorf("a cluster without endpoints is among all:\n%s", out)
	}
	_, out, _ := result(t, "--socket", socket, "pc", "secret", "web-1.shop")
	for _, want := range []string{"RESOURCE NAME", "cert ", "Cert Chain", "roots ", "CA ", "ACTIVE", "false", "2038-01-19T"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	_, out, _ = result(t, "--socket", socket, "pc", "all", "web-1.shop", "--port", "90")
	if strings.Contains(out, "db.example\n") || !strings.Contains(out, "10.0.0.9") || !strings.Contains(out, "VHOST NAME") {
		t.Errorf("all types, of port 90 where they have ports:\n%s", out)
	}
}

// squeeze makes the space between columns one blank.
func squeeze(table string) string {
	var lines []string
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// What only Envoy knows comes from its admin interface on this machine, if that is the Envoy of the
// proxy.
func TestLocalEnvoy(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{
		"GET /server_info": `{"node":{"id":"sidecar~10.0.0.1~web-1.shop~x"}}`,
		"POST /logging":    "active loggers:\n  http: warning\n",
		"GET /config_dump": `{"configs":[{"@type":"x.ClustersConfigDump"},{"@type":"x.BootstrapConfigDump","bootstrap":{"node":{"cluster":"c"}}}]}`,
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, answers[r.Method+" "+r.URL.Path])
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	for args, want := range map[string]string{
		"log web-1.shop":       "active loggers:\n  http: warning\n\nashore-agent proxy-log --level LEVEL sets them.\n",
		"bootstrap web-1.shop": "node:\n  cluster: c\n",
		"b web-1.shop -o json": "{\n  \"node\": {\n    \"cluster\": \"c\"\n  }\n}\n",
	} {
		code, out, errOut := result(t, append([]string{"pc", "--admin-socket", socket}, strings.Fields(args)...)...)
		if code != 0 || out != want {
			t.Errorf("%s: %d, %q, %s; want %q", args, code, out, errOut, want)
		}
	}
	code, _, errOut := result(t, "pc", "--admin-socket", socket, "bootstrap", "api-1.shop")
	if code != 1 || !strings.Contains(errOut, "no Envoy of api-1.shop answers on this machine") ||
		!strings.Contains(errOut, "curl --unix-socket STATE/admin.sock http://envoy/config_dump") {
		t.Errorf("another proxy: %d, %s", code, errOut)
	}
}
