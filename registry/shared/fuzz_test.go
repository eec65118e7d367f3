package shared

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/ashore-mesh/ashore/registry"
)

// Every value is rejected, or read as something that can be written and read again.
func FuzzDecode(f *testing.F) {
	web := registry.Registration{
		RegistrationKey: registry.RegistrationKey{Namespace: "shop", Group: "web", Name: "web-10.0.0.1"},
		Addresses:       []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Session:         "session",
	}
	value, err := encode(&web, "owner")
	if err != nil {
		f.Fatal(err)
	}
	name := recordName(web.RegistrationKey)
	noAddress := bytes.Replace(value, []byte("10.0.0.1"), []byte("nowhere"), 1)
	for _, seed := range [][]byte{value, {}, []byte("null"), []byte("{}"), noAddress} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, owner, err := decode(name, value)
		if err != nil {
			return
		}
		again, err := encode(r, owner)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		if _, _, err := decode(name, again); err != nil {
			t.Fatalf("decode after encode: %v", err)
		}
	})
}
