package registry

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func fullInstances() []Instances {
	return []Instances{
		{Service: &Service{Key: Key{Host: "web.service.consul", Namespace: "default"}, Ports: []Port{{Number: 80}}}},
		{
			Service: &Service{
				Key: Key{Host: "db.example", Namespace: "shop"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, AutoAddresses: []netip.Addr{netip.MustParseAddr("240.0.0.1")},
				Ports: []Port{{Number: 3306, Name: "mysql", Protocol: MySQL, TargetPort: 3307}}, Resolution: DNSRoundRobin, External: true, ExportTo: []string{"."}, Labels: map[string]string{"a": "b"},
				SubjectAltNames: []string{"spiffe://x/ns/a/sa/b"}, Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Source: "consul:dc1", Object: "service db",
			},
			Endpoints: &EndpointList{Items: []Endpoint{{
				Address: "10.0.0.1", Ports: map[string]uint32{"mysql": 1}, Labels: map[string]string{"v": "1"}, Locality: Locality{"r", "z", "s"}, Network: "n", Weight: 7,
				ServiceAccount: "db", Namespace: "shop", Workload: "db-1", TLSMode: "istio", Health: Draining,
			}}},
		},
	}
}

// What is kept comes back as it was, in all its fields.
func TestInstancesCodec(t *testing.T) {
	t.Parallel()
	want := fullInstances()
	b, err := EncodeInstances(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeInstances(b)
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for i := range got {
		if !got[i].Service.Equal(want[i].Service) || !got[i].Endpoints.Equal(want[i].Endpoints) {
			t.Errorf("%s is another", want[i].Service.Host)
		}
	}
}

// Names that nobody knows, and services that lack what all have, are refused.
func TestInstancesRefused(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`[{}]`:                                "service 0: there is none",
		`[{"Service":{}}]`:                    "it has no host",
		`[{"Service":{"Host":"a"}}]`:          "a has no port",
		`[{"Service":{"Resolution":"LUCK"}}]`: `"LUCK" is no resolution: want STATIC, DNS`,
		`[{"Service":{"Host":"a","Ports":[{"Protocol":"SMTP"}]}}]`:                                         `"SMTP" is no protocol`,
		`[{"Service":{"Host":"a","Ports":[{}]},"Endpoints":{"Items":[{}]}}]`:                               "endpoint 0 of a has no address",
		`[{"Service":{"Host":"a","Ports":[{}]},"Endpoints":{"Items":[{"Address":"x","Health":"so so"}]}}]`: `"so so" is no health`,
	} {
		if got, err := DecodeInstances([]byte(in)); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%s: %v, %v, want %q", in, got, err, want)
		}
	}
	if _, err := EncodeInstances([]Instances{{Service: &Service{Resolution: 99}}}); err == nil {
		t.Error("a resolution that there is not is written")
	}
	if Protocol(99).String() != "99" || GRPCWeb.String() != "GRPC-WEB" || Passthrough.String() != "NONE" || Draining.String() != "draining" {
		t.Error("names are others")
	}
}

// FuzzInstances: what can be read is written the same way again.
func FuzzInstances(f *testing.F) {
	b, err := EncodeInstances(fullInstances())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := DecodeInstances(b)
		if err != nil {
			return
		}
		again, err := EncodeInstances(all)
		if err != nil {
			return // names that JSON has and we do not
		}
		back, err := DecodeInstances(again)
		if err != nil || len(back) != len(all) {
			t.Fatalf("%v: %s", err, again)
		}
	})
}
