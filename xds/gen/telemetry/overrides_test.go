package telemetry

import (
	"maps"
	"slices"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	statslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	mesh "istio.io/api/mesh/v1alpha1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/envoylabel"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
)

// settings are those of a proxy for which objects of these specs apply, from the mesh down.
func settings(t *testing.T, m *push.Mesh, specs ...string) Settings {
	t.Helper()
	var objects []*config.Object
	for _, spec := range specs {
		r := config.Parse("t.yaml", []byte("apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: t}\nspec: "+spec))
		for _, p := range r.Problems {
			t.Fatal(p)
		}
		objects = append(objects, r.Objects...)
	}
	return Settings{mesh: m, objects: new(intern.Lists[*config.Object]).Of(objects)}
}

// counted has the tags of each statistic of loggers: those that no proxy has by default.
func counted(t *testing.T, logs []*accesslogv3.AccessLog) map[string]string {
	t.Helper()
	usual := map[string]bool{}
	for _, tag := range Source.tags() {
		usual[tag.Name] = true
	}
	out := map[string]string{}
	add := func(s *statslogv3.Config_Stat) {
		var tags []string
		for _, tag := range s.Tags {
			if !usual[tag.Name] {
				tags = append(tags, tag.Name+"="+tag.ValueFormat)
			}
		}
		slices.Sort(tags)
		out[s.Name] = strings.Join(tags, " ")
	}
	for _, l := range logs {
		var c statslogv3.Config
		if l.Name != "envoy.access_loggers.stats" {
			continue
		}
		if err := l.GetTypedConfig().UnmarshalTo(&c); err != nil {
			t.Fatal(err)
		}
		for _, x := range c.Counters {
			add(x.Stat)
		}
		for _, x := range c.Histograms {
			add(x.Stat)
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	byDefault := &push.Mesh{Config: config.DefaultMesh()}
	off := &push.Mesh{Config: config.DefaultMesh()}
	off.Config.DefaultProviders.Metrics = nil
	all := slices.Sorted(maps.Keys(counted(t, settings(t, byDefault).Side(Source).Requests)))
	for name, tc := range map[string]struct {
		mesh   *push.Mesh
		specs  []string
		client bool // whether the side that sends counts, and the side that receives
		server bool
	}{
		"by default":             {byDefault, nil, true, true},
		"no provider":            {off, nil, false, false},
		"no provider, overrides": {off, []string{"{metrics: [{overrides: [{disabled: false}]}]}"}, false, false},
		"named":                  {off, []string{"{metrics: [{providers: [{name: prometheus}]}]}"}, true, true},
		"another provider":       {byDefault, []string{"{metrics: [{providers: [{name: nobody}]}]}"}, false, false},
		"disabled":               {byDefault, []string{"{metrics: [{overrides: [{disabled: true}]}]}"}, false, false},
		"disabled for a side":    {byDefault, []string{"{metrics: [{overrides: [{match: {mode: CLIENT}, disabled: true}]}]}"}, false, true},
		"enabled below": {byDefault, []string{"{metrics: [{overrides: [{match: {metric: ALL_METRICS}, disabled: true}]}]}",
			"{metrics: [{overrides: [{match: {mode: SERVER}, disabled: false}]}]}"}, false, true},
	} {
		s := settings(t, tc.mesh, tc.specs...)
		for side, want := range map[Reporter]bool{Source: tc.client, Destination: tc.server} {
			requests, connections := counted(t, s.Side(side).Requests), counted(t, s.Side(side).Connections)
			if got := len(requests) >= len(all) && len(connections) == 4; got != want || !want && len(requests)+len(connections) > 0 {
				t.Errorf("%s, %s: counts %v and %v, want it to count: %v", name, side, requests, connections, want)
			}
		}
	}
}

// No override may change what the agent computes labels from.
func TestReservedTags(t *testing.T) {
	t.Parallel()
	reserved := []string{envoylabel.RemovedTags, "cluster_name", "__name__"}
	for _, by := range []Reporter{Source, Destination} {
		for _, tag := range by.tags() {
			reserved = append(reserved, tag.Name)
		}
	}
	for _, name := range reserved {
		r := config.Parse("t.yaml", []byte("apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: t}\n"+
			"spec: {metrics: [{overrides: [{tagOverrides: {"+name+": {value: request.host}}}]}]}"))
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "reserved") {
			t.Errorf("tag %s: got %v, want it reserved", name, r.Problems)
		}
	}
}

// Later overrides go before earlier ones. A tag that is removed is named in one tag for the agent.
func TestTagOverrides(t *testing.T) {
	t.Parallel()
	s := settings(t, &push.Mesh{Config: config.DefaultMesh()},
		`{metrics: [{overrides: [{tagOverrides: {a: {value: request.host}, response_flags: {operation: REMOVE}, source_version: {operation: REMOVE}}}]}]}`,
		`{metrics: [{overrides: [
			{match: {metric: REQUEST_COUNT}, tagOverrides: {a: {value: request.id}, response_code: {value: "'2xx'"}, source_version: {value: "'v1'"}}},
			{match: {metric: REQUEST_DURATION}, disabled: true}]}]}`)
	got := counted(t, s.Side(Source).Requests)
	want := "a=%CEL(request.id):128% grpc_response_status=%GRPC_STATUS_NUMBER% removed_tags=response_flags " +
		"request_protocol=%REQ(CONTENT-TYPE)% response_code=%CEL('2xx'):128% source_version=%CEL('v1'):128%"
	if d := cmp.Diff(want, got["requests_total"]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, ok := got["request_duration_milliseconds"]; ok {
		t.Errorf("the duration is counted, which is disabled: %v", got)
	}
	opened := counted(t, s.Side(Source).Connections)["tcp_connections_opened_total"]
	if opened != "a=%CEL(request.host):128% removed_tags=response_flags,source_version request_protocol=tcp" {
		t.Errorf("connections have the tags %s", opened)
	}
}

// A tag of the user replaces Istio's span tag of the same name, and the order of tags is always the
// same.
func TestCustomTagReplacesIstioTag(t *testing.T) {
	t.Parallel()
	from := &telemetry.Tracing_CustomTag{Type: &telemetry.Tracing_CustomTag_Literal{
		Literal: &telemetry.Tracing_Literal{Value: "x"}}}
	by := tracing{istioTags: true, clusterID: "c1",
		tags: map[string]*telemetry.Tracing_CustomTag{"istio.cluster_id": from, "istio.mesh_id": from, "a": from}}
	var names []string
	for _, tag := range by.customTags() {
		if strings.HasPrefix(tag.Tag, "istio.authorization") {
			continue
		}
		names = append(names, tag.Tag)
		if tag.GetLiteral().GetValue() == "x" {
			names[len(names)-1] += "=x"
		}
	}
	want := []string{"a=x", "istio.canonical_revision", "istio.canonical_service", "istio.cluster_id=x", "istio.mesh_id=x",
		"istio.namespace"}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Tags of MeshConfig give the same span tags as those of a Telemetry.
func TestMeshTags(t *testing.T) {
	t.Parallel()
	const tags = `{"customTags": {"a": {"literal": {"value": "x"}}, "b": {"environment": {"name": "HOME",
		"defaultValue": "y"}}, "c": {"header": {"name": "x-b", "defaultValue": "z"}}}}`
	var m mesh.Tracing
	var spec telemetry.Tracing
	for _, to := range []proto.Message{&m, &spec} {
		if err := protojson.Unmarshal([]byte(tags), to); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(spec.CustomTags, meshTags(m.CustomTags), protocmp.Transform()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
