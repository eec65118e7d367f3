package registry

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func decode(b []byte) (in Instances, err error) {
	err = json.Unmarshal(b, &in)
	return in, err
}

func fullInstances() []Instances {
	return []Instances{
		{Service: &Service{Key: Key{Host: "web.service.consul", Namespace: "default"}, Ports: []Port{{Number: 80}}}},
		{
			Service: &Service{
				Key: Key{Host: "db.example",
					Namespace: "shop"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, AutoAddresses: []netip.Addr{netip.MustParseAddr("240.0.0.1")},
				Ports: []Port{{Number: 3306, Name: "mysql", Protocol: MySQL,
					TargetPort: 3307}}, Resolution: DNSRoundRobin, External: true, ExportTo: []string{"."}, Labels: map[string]string{"a": "b"},
				SubjectAltNames: []string{"spiffe://x/ns/a/sa/b"}, Created: time.Date(2026, 1, 2, 3, 4, 5, 6,
					time.UTC), Source: "consul:dc1", Object: "service db",
			},
			Endpoints: &EndpointList{Items: []Endpoint{{
				Address: "10.0.0.1", Ports: map[string]uint32{"mysql": 1}, Labels: map[string]string{"v": "1"}, Locality: Locality{"r", "z", "s"}, Network: "n", Weight: 7,
				ServiceAccount: "db", Namespace: "shop", Workload: "db-1", TLSMode: "istio", Health: Draining,
			}}},
		},
	}
}

// What is saved is read back equal, in all fields.
func TestCodec(t *testing.T) {
	t.Parallel()
	want := fullInstances()
	for _, want := range want {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); err != nil ||
			diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if !got.Service.Equal(want.Service) || !got.Endpoints.Equal(want.Endpoints) {
			t.Errorf("%s differs", want.Service.Host)
		}
	}
}

// Unknown names and incomplete services are refused.
func TestCodecRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{}`:                                "there is no service",
		`{"Service":{}}`:                    "the service has no host",
		`{"Service":{"Host":"a"}}`:          "a has no port",
		`{"Service":{"Resolution":"LUCK"}}`: `"LUCK" is no resolution: want STATIC, DNS`,
		`{"Service":{"Host":"a","Ports":[{"Protocol":"SMTP"}]}}`:                                         `"SMTP" is no protocol`,
		`{"Service":{"Host":"a","Ports":[{}]},"Endpoints":{"Items":[{}]}}`:                               "endpoint 0 of a has no address",
		`{"Service":{"Host":"a","Ports":[{}]},"Endpoints":{"Items":[{"Address":"x","Health":"so so"}]}}`: `"so so" is no health`,
	} {
		if got, err := decode([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", in, got, err, want)
		}
	}
	if _, err := json.Marshal(Instances{Service: &Service{Resolution: 99}}); err == nil {
		t.Error("a resolution that there is not is written")
	}
	if Protocol(99).String() != "99" || GRPCWeb.String() != "GRPC-WEB" || Passthrough.String() != "NONE" ||
		Draining.String() != "draining" {
		t.Error("names are others")
	}
}

// FuzzCodec: what can be read is written the same way again.
func FuzzCodec(f *testing.F) {
	for _, in := range fullInstances() {
		b, err := json.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := decode(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(in)
		if err != nil {
			return // values that JSON has and we do not
		}
		if _, err := decode(again); err != nil {
			t.Fatalf("%v: %s", err, again)
		}
	})
}
