package agent

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// What the mesh sets about Envoy's process applies where the agent's settings have their defaults.
func TestMeshSettings(t *testing.T) {
	t.Parallel()
	all := &meshconfig.ProxyConfig{Concurrency: wrapperspb.Int32(3), DrainDuration: durationpb.New(7 * time.Second),
		TerminationDrainDuration: durationpb.New(9 * time.Second),
		ProxyMetadata:            map[string]string{"B": "b c", "A": "a", "ISTIO_META_X": "x", resource.BypassedPorts: "80"}}
	zero := &meshconfig.ProxyConfig{Concurrency: wrapperspb.Int32(0), TerminationDrainDuration: durationpb.New(0)}
	for name, tc := range map[string]struct {
		mesh *meshconfig.ProxyConfig
		set  func(*Settings)
		want string
	}{
		"none":      {nil, func(*Settings) {}, fmt.Sprintf("%d 45s [] 5s", min(2, runtime.NumCPU()))},
		"the mesh":  {all, func(*Settings) {}, "3 7s [A=a B=b c] 9s"},
		"all cores": {zero, func(*Settings) {}, fmt.Sprintf("%d 45s [] 0s", runtime.NumCPU())},
		"the agent": {all, func(s *Settings) {
			s.Envoy.Concurrency, s.Envoy.DrainTime, s.Drain.Maximum = 5, time.Minute, time.Hour
		}, "5 1m0s [A=a B=b c] 1h0m0s"},
	} {
		a := &Agent{settings: good(), log: hclog.NewNullLogger()}
		tc.set(&a.settings)
		a.setConfig(tc.mesh)
		a.settings.Envoy.adopt(a.config.Load())
		o := a.settings.options()
		got := fmt.Sprint(o.Concurrency, " ", o.DrainTime, " ", o.Variables, " ", a.drainSettings().Maximum)
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
