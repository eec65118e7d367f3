package revoked_test

import (
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/revoked"
)

func peer(address string, epoch uint64) revoked.Peer {
	return revoked.Peer{Address: netip.MustParseAddr(address), Epoch: epoch}
}

// What is told is what is heard, also by who knows fewer fields.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	want := []revoked.Peer{peer("10.0.0.7", 3), peer("fd00::1", 300), peer("10.0.0.8", 0)}
	later := protowire.AppendVarint(protowire.AppendTag(revoked.Encode(want), 9, protowire.VarintType), 1)
	for name, body := range map[string][]byte{"same": revoked.Encode(want), "later version": later} {
		got, err := revoked.Decode(body)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
	if got, err := revoked.Decode(nil); err != nil || len(got) != 0 {
		t.Errorf("nothing: got %v, %v", got, err)
	}
}

// The order in which they are found does not matter, and the latest count when they are too many.
func TestSort(t *testing.T) {
	t.Parallel()
	got := revoked.Sort([]revoked.Peer{peer("10.0.0.9", 2), peer("10.0.0.1", 2), peer("10.0.0.9", 1), peer("10.0.0.1", 2)})
	if want := []revoked.Peer{peer("10.0.0.9", 1), peer("10.0.0.1", 2), peer("10.0.0.9", 2)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var many []revoked.Peer
	for i := range uint64(revoked.MaxPeers + 5) {
		many = append(many, peer("10.0.0.1", i))
	}
	if got := revoked.Sort(many); len(got) != revoked.MaxPeers || got[0].Epoch != 5 {
		t.Errorf("got %d from epoch %d, want %d from epoch 5", len(got), got[0].Epoch, revoked.MaxPeers)
	}
}

// What is no list is refused as a whole.
func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	good := revoked.Encode([]revoked.Peer{peer("10.0.0.7", 3)})
	var long []byte
	for range revoked.MaxPeers + 1 {
		long = append(long, good...)
	}
	for name, body := range map[string][]byte{
		"cut off":    good[:len(good)-1],
		"no address": {10, 2, 16, 3},
		"a name":     {10, 3, 10, 1, 'x'},
		"no tag":     {0xff},
		"too many":   long,
	} {
		if got, err := revoked.Decode(body); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
}

// Whatever comes, nothing panics, and what is understood is bounded and can be said again.
func FuzzDecode(f *testing.F) {
	f.Add(revoked.Encode([]revoked.Peer{peer("10.0.0.7", 3), peer("fd00::1%eth0", 1)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := revoked.Decode(body)
		if err != nil {
			return
		}
		if len(got) > revoked.MaxPeers {
			t.Fatalf("%d peers", len(got))
		}
		if again, err := revoked.Decode(revoked.Encode(got)); err != nil || !slices.Equal(again, got) {
			t.Errorf("got %v, %v, want %v", again, err, got)
		}
	})
}
