package config

import (
	"reflect"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
)

// Endpoints with equal labels share one map, others do not, and nobody's labels change.
func TestLabelsAreShared(t *testing.T) {
	t.Parallel()
	r := Parse("se.yaml", []byte(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a}
spec:
  hosts: [a.example.com]
  resolution: STATIC
  ports: [{number: 80, name: http}]
  endpoints:
  - {address: 10.0.0.1, labels: {app: a, version: v1}}
  - {address: 10.0.0.2, labels: {app: a, version: v2}}
  - {address: 10.0.0.3, labels: {version: v1, app: a}}
  - {address: 10.0.0.4}
`))
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	eps := r.Objects[0].Spec.(*networking.ServiceEntry).Endpoints
	same := func(i, j int) bool {
		return reflect.ValueOf(eps[i].Labels).Pointer() == reflect.ValueOf(eps[j].Labels).Pointer()
	}
	if !same(0, 2) || same(0, 1) {
		t.Errorf("first and third share: %v, want true; first and second: %v, want false", same(0, 2), same(0, 1))
	}
	if eps[1].Labels["version"] != "v2" || eps[2].Labels["version"] != "v1" || len(eps[3].Labels) != 0 {
		t.Errorf("labels changed: %v", eps)
	}
}
