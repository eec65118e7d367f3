package config

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"
)

// Durations of a patch may have any unit, wherever they are.
func TestPatchDurations(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 500ms, dnsRefreshRate: 2m}}}`:                                `{"connectTimeout":"0.500s","dnsRefreshRate":"120s"}`,
		`{applyTo: CLUSTER, patch: {operation: MERGE, value: {health_checks: [{timeout: 10ms, interval: 1s}]}}}`:                            `{"healthChecks":[{"timeout":"0.010s","interval":"1s"}]}`,
		`{applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: a, typed_config: {"@type": type.googleapis.com/` + rateLimit + `}}}}`: `"timeout":"0.020s"`,
		`{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {typed_per_filter_config: {a: {"@type": ` + extAuthz + `}}}}}`:            `"timeout":"0.250s"`,
		`{applyTo: CLUSTER, patch: {operation: MERGE, value: {metadata: {filter_metadata: {a: {connect_timeout: 500ms}}}}}}`:                `"connect_timeout":"500ms"`,
	} {
		r := Parse("a.yaml", []byte("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: a, namespace: b}\n"+
			"spec: {configPatches: ["+spec+"]}\n"))
		if len(r.Objects) != 1 {
			t.Errorf("%s: refused: %v", spec, r.Problems)
			continue
		}
		m, err := PatchValue(r.Objects[0].Spec.(*networking.EnvoyFilter).ConfigPatches[0])
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		text, err := protojson.Marshal(m)
		if got := strings.ReplaceAll(string(text), " ", ""); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: got %s, %v, want %s", spec, got, err, want)
		}
	}
}

const (
	rateLimit = `envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: d, timeout: 20ms, rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: c}}}`
	extAuthz  = `type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute, check_settings: {http_service: {server_uri: {uri: a, cluster: b, timeout: 250ms}}}`
)
