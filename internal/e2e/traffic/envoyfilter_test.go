package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// limiter is a service of global rate limits: it lets through what has no header x-user: greedy.
type limiter struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
}

func (limiter) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	out := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	if r.Domain == "shop" && r.Descriptors[0].Entries[0].Value == "greedy" {
		out.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	return out, nil
}

// processor adds a header to each request.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (processor) Process(s grpc.BidiStreamingServer[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse]) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		headers := &extprocv3.HeadersResponse{}
		if r.GetRequestHeaders() != nil {
			headers.Response = &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-processed", RawValue: []byte("yes")}}}}}
		}
		if err := s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
			RequestHeaders: headers}}); err != nil {
			return err
		}
	}
}

// serveGRPC serves both at address until the test ends.
func serveGRPC(t *testing.T, address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(s, limiter{})
	extprocv3.RegisterExternalProcessorServer(s, processor{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// patches is an EnvoyFilter for gateways.
func patches(name, text string) string {
	return "---\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: " + name + "}\nspec:\n" +
		"  workloadSelector: {labels: {app: gateway}}\n  configPatches:\n" + strings.Trim(text, "\n") + "\n"
}

// beforeRouter inserts an HTTP filter.
func beforeRouter(filter string) string {
	return `
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch: {operation: INSERT_BEFORE, value: ` + filter + `}
`
}

const ext = "type.googleapis.com/envoy.extensions.filters.http."

// A gateway limits, scripts, processes and compresses requests as patches say, and has a cluster and
// a listener of theirs.
func TestEnvoyFilters(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, ip, services := backend(t, m, "v1"), m.IP(), m.IP()
	serveGRPC(t, services+":9000")
	text := service("web.test", at(v1)) + gatewayYAML(ip, "  - {port: {number: 9080, name: http, protocol: HTTP}, hosts: [\"*\"]}\n")
	for _, host := range []string{"plain.test", "local.test", "global.test"} {
		text += gatewayRoute(host, "  - route: [{destination: {host: web.test}}]\n")
	}
	text += patches("limits", beforeRouter(`{name: envoy.filters.http.local_ratelimit, typed_config: {"@type": `+ext+`local_ratelimit.v3.LocalRateLimit, stat_prefix: none}}`)+
		beforeRouter(`{name: envoy.filters.http.ratelimit, typed_config: {"@type": `+ext+`ratelimit.v3.RateLimit, domain: shop, failure_mode_deny: true,
      rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: helpers}}}}}`)+`
  - applyTo: VIRTUAL_HOST
    match: {context: GATEWAY, routeConfiguration: {vhost: {name: "local.test:9080"}}}
    patch:
      operation: MERGE
      value:
        typed_per_filter_config:
          envoy.filters.http.local_ratelimit:
            "@type": `+ext+`local_ratelimit.v3.LocalRateLimit
            stat_prefix: local
            token_bucket: {max_tokens: 2, tokens_per_fill: 2, fill_interval: 3600s}
            filter_enabled: {default_value: {numerator: 100}}
            filter_enforced: {default_value: {numerator: 100}}
  - applyTo: VIRTUAL_HOST
    match: {context: GATEWAY, routeConfiguration: {portNumber: 9080, vhost: {domainName: global.test}}}
    patch: {operation: MERGE, value: {rate_limits: [{actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]}}
  - applyTo: CLUSTER
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value:
        name: helpers
        type: STATIC
        typed_extension_protocol_options:
          envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {http2_protocol_options: {}}}
        load_assignment: {cluster_name: helpers, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: `+services+`, port_value: 9000}}}}]}]}
`)
	text += patches("filters", beforeRouter(`{name: script, config_discovery: {config_source: {ads: {}, resource_api_version: V3}, type_urls: ["`+ext+`lua.v3.Lua"]}}`)+
		beforeRouter(`{name: envoy.filters.http.ext_proc, typed_config: {"@type": `+ext+`ext_proc.v3.ExternalProcessor,
      grpc_service: {envoy_grpc: {cluster_name: helpers}}, processing_mode: {response_header_mode: SKIP}}}`)+
		beforeRouter(`{name: envoy.filters.http.compressor, typed_config: {"@type": `+ext+`compressor.v3.Compressor,
      compressor_library: {name: gzip, typed_config: {"@type": type.googleapis.com/envoy.extensions.compression.gzip.compressor.v3.Gzip}}}}`)+`
  - applyTo: CLUSTER
    match: {context: GATEWAY, cluster: {service: web.test, portNumber: 8080}}
    patch: {operation: MERGE, value: {alt_stat_name: merged}}
  - applyTo: LISTENER
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value:
        name: added
        address: {socket_address: {address: `+ip+`, port_value: 9090}}
        filter_chains: [{filters: [{name: tcp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: added, cluster: outbound|8080||web.test}}]}]
`)
	script := func(value string) string {
		return patches("script", `
  - applyTo: EXTENSION_CONFIG
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value:
        name: script
        typed_config:
          "@type": `+ext+`lua.v3.Lua
          default_source_code:
            inline_string: function envoy_on_request(h) h:headers():replace("x-script", "`+value+`") end
`)
	}
	m.Write("gw.yaml", text)
	m.Write("script.yaml", script("one"))
	p := gateway(m, ip)
	client := p.Client(9080)
	for what, c := range map[string]struct {
		request harness.Request
		check   func(harness.Answer) error
	}{
		"script": {harness.Request{Host: "plain.test"}, saw(func(s harness.Seen) error { return wants(s.Header.Get("x-script"), "one") })},
		"external processing": {harness.Request{Host: "plain.test"},
			saw(func(s harness.Seen) error { return wants(s.Header.Get("x-processed"), "yes") })},
		"compression": {harness.Request{Host: "plain.test", Header: map[string]string{"Accept-Encoding": "gzip"}},
			all(harness.Status(http.StatusOK), answerHeader("Content-Encoding", "gzip"))},
		"global limit":         {harness.Request{Host: "global.test", Header: map[string]string{"x-user": "greedy"}}, harness.Status(http.StatusTooManyRequests)},
		"within global limit":  {harness.Request{Host: "global.test", Header: map[string]string{"x-user": "modest"}}, harness.From("v1")},
		"local limit":          {harness.Request{Host: "local.test"}, harness.Status(http.StatusTooManyRequests)},
		"another virtual host": {harness.Request{Host: "plain.test"}, harness.From("v1")},
	} {
		client.Want(t, what, c.request, c.check)
	}
	if !strings.Contains(p.ConfigDump(), `"alt_stat_name": "merged"`) {
		t.Error("the cluster is not merged")
	}
	p.Client(9090).Want(t, "the added listener", harness.Request{Host: "any.test"}, harness.From("v1"))
	m.Write("script.yaml", script("two"))
	client.Want(t, "a changed script", harness.Request{Host: "plain.test"},
		saw(func(s harness.Seen) error { return wants(s.Header.Get("x-script"), "two") }))

	// What Envoy refuses is named with its patch; what breaks its rules is not sent.
	m.Write("bad.yaml", patches("bad", beforeRouter(`{name: bad, typed_config: {"@type": `+ext+`lua.v3.Lua, default_source_code: {inline_string: "not Lua"}}}`)+
		"  - {applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 0s}}}\n"+
		"  - {applyTo: CLUSTER, match: {cluster: {service: wbe.test}}, patch: {operation: REMOVE}}\n"))
	harness.Eventually(t, "problems", func() error {
		out, err := exec.Command(harness.Program("ashorectl"), "--socket", m.Socket(), "problems").CombinedOutput()
		for _, want := range []string{"ERROR", "default/bad  spec.configPatches[0]", "bad.yaml:", "first those changed since the last accepted version: EnvoyFilter default/bad spec.configPatches[0]",
			"default/bad  spec.configPatches[2]", "changes nothing", "default/bad  spec.configPatches[1].patch",
			"invalid Cluster.ConnectTimeout"} {
			if !strings.Contains(string(out), want) {
				return fmt.Errorf("no %q in %s (%w)", want, out, err)
			}
		}
		return nil
	})
	client.Want(t, "the last good listener", harness.Request{Host: "plain.test"}, harness.From("v1"))
}
