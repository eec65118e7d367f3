package registry

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// Any bytes are registrations, which are written and read again as they are, or an error.
func FuzzSnapshot(f *testing.F) {
	r := &Registration{RegistrationKey: RegistrationKey{"shop", "web", "web-10.0.0.1"}, Identity: "spiffe://a/ns/shop/sa/web", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Labels: map[string]string{"app": "web"}, Locality: Locality{"eu", "a", ""}, Probed: true, Health: Report{ReportedUnhealthy, "x", "80=closed", time.Unix(1, 0).UTC()}, Created: time.Unix(1, 2).UTC()}
	raw, err := encodeSnapshot(Registrations{}.With(r.RegistrationKey, r))
	if err != nil {
		f.Fatal(err)
	}
	if list, err := decodeSnapshot(raw); err != nil || len(list) != 1 || !reflect.DeepEqual(&list[0], r) {
		f.Fatalf("read %+v, %v; wrote %+v", list, err, r)
	}
	f.Add(raw, false)
	for _, inner := range []string{`[]`, `null`, `[{}]`, `[{"namespace":"a","name":"b","addresses":[""]}]`, `[{"namespace":"a","name":"b","addresses":["10.0.0.1"],"health":{"state":9}}]`} {
		f.Add([]byte(inner), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, sealed bool) {
		if sealed && json.Valid(raw) { // past the sum, which no accident gets right
			raw = []byte(`{"v":1,"sha256":"` + sumOf(bytes.TrimSpace(raw)) + `","registrations":` + string(raw) + `}`)
		}
		list, err := decodeSnapshot(raw)
		if err != nil {
			return
		}
		var all Registrations
		for _, r := range list {
			all = all.With(r.RegistrationKey, &r)
		}
		again, err := encodeSnapshot(all)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := decodeSnapshot(again)
		if err != nil || len(back) != all.Len() {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

// Every single changed byte is noticed.
func TestSnapshotDamage(t *testing.T) {
	t.Parallel()
	r := &Registration{RegistrationKey: RegistrationKey{"shop", "web", "web-10.0.0.1"}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	raw, err := encodeSnapshot(Registrations{}.With(r.RegistrationKey, r))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		damaged := append([]byte(nil), raw...)
		damaged[i] ^= 1
		if list, err := decodeSnapshot(damaged); err == nil && (len(list) != 1 || !reflect.DeepEqual(&list[0], r)) {
			t.Errorf("byte %d: read %+v", i, list)
		}
		if list, err := decodeSnapshot(raw[:i]); err == nil {
			t.Errorf("cut at %d: read %+v", i, list)
		}
	}
}
