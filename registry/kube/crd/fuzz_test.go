package crd

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ashore-mesh/ashore/config"
)

// Any JSON that an API server may send is an object or a problem: the key is never that of another
// object, and converting it twice gives the same.
func FuzzObject(f *testing.F) {
	for _, text := range []string{
		`{"apiVersion":"networking.istio.io/v1","kind":"Gateway","metadata":{"name":"a","namespace":"edge","generation":3},` +
			`"spec":{"servers":[{"hosts":["*"],"port":{"number":80,"name":"http","protocol":"HTTP"}}]},` +
			`"status":{"conditions":[{"type":"Reconciled","status":"True"},{"type":"Other"},1]}}`,
		`{"apiVersion":"networking.istio.io/v1","kind":"VirtualService",` +
			`"metadata":{"name":"a","labels":{"istio.io/rev":"x"}}}`,
		`{"kind":"List","items":[{"kind":"Gateway"}]}`, `{"kind":"Gateway","metadata":{"name":"b"},"status":7}`,
		`{"kind":"Gateway","metadata":{"name":"é\u2028<\/\u0000","annotations":{"x":1}},"spec":{"a":1e999}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read := func() *unstructured.Unstructured {
			u := &unstructured.Unstructured{}
			if u.UnmarshalJSON([]byte(text)) != nil || u.IsList() {
				return nil
			}
			return u
		}
		u := read()
		if u == nil {
			return
		}
		info, known := config.Info(config.Kind(u.GetKind()))
		if !known {
			info, _ = config.Info(config.Gateway)
		}
		key := keyOf(info.Kind, u)
		o, up := convert("kubernetes", info, u)
		again := read()
		other, _ := convert("kubernetes", info, again)
		switch {
		case o.key != key || up.Group != key.String():
			t.Errorf("key %v and group %q, want %v", o.key, up.Group, key)
		case o.hash != other.hash:
			t.Errorf("hash %x, and %x the second time", o.hash, other.hash)
		case len(up.Items) == 1 && (up.Items[0].Key != key || o.hash == 0 || len(up.Invalid) > 0):
			t.Errorf("object %v with hash %x, invalid %q, for %v", up.Items[0].Key, o.hash, up.Invalid, key)
		case len(up.Items) == 0 && (len(up.Invalid) != 1 || len(up.Problems) == 0):
			t.Errorf("no object, and %+v", up)
		}
		conditionOf(o)
		foreign(u)
	})
}
