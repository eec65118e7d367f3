package listener

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

func TestRuleOfConnections(t *testing.T) {
	t.Parallel()
	minute, zero := durationpb.New(time.Minute), durationpb.New(0)
	pool := func(idle *durationpb.Duration) *networking.ConnectionPoolSettings {
		return &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{IdleTimeout: idle}}
	}
	bySource := &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{
		ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true}},
	}}
	round := &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: networking.LoadBalancerSettings_ROUND_ROBIN}}
	rule := &push.DestinationRule{Spec: &networking.DestinationRule{
		TrafficPolicy: &networking.TrafficPolicy{
			ConnectionPool: pool(minute),
			LoadBalancer:   bySource,
			PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{
				{Port: &networking.PortSelector{Number: 3306}, ConnectionPool: pool(zero)},
			},
		},
		Subsets: []*networking.Subset{{Name: "v1", TrafficPolicy: &networking.TrafficPolicy{LoadBalancer: round}}},
	}}
	tests := []struct {
		name   string
		rule   *push.DestinationRule
		port   uint32
		subset string
		want   tcpSpec
	}{
		{name: "no rule"},
		{name: "the whole host", rule: rule, port: 1, want: tcpSpec{idle: minute, hashSource: true}},
		// settings of a port replace those above them as a whole, as they do in the port's cluster
		{name: "a port", rule: rule, port: 3306, want: tcpSpec{idle: zero}},
		{name: "a subset", rule: rule, port: 1, subset: "v1", want: tcpSpec{idle: minute}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got tcpSpec
			got.apply(tt.rule, tt.port, tt.subset)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
