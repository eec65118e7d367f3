package entry

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// lender lends nothing.
type lender struct{ Lender }

func (lender) Release([]registry.Key) {}

// An answer may come while services are still derived without it. It is to be waited for like one that is under way:
// a first context without would take the addresses away that the store knows.
func TestAnswerOvertakes(t *testing.T) {
	t.Parallel()
	web := registry.Key{Host: "web", Namespace: "shop"}
	wanted := map[registry.Key]bool{web: true}
	a := newAllocator(lender{}, time.Second)
	if _, err := a.Allocate(t.Context(), []registry.Key{web}); !errors.Is(err, errUnderWay) {
		t.Fatalf("asked for the first time: %v, want %v", err, errUnderWay)
	}
	if !a.only(wanted) {
		t.Error("the store was asked, and nothing is to be waited for")
	}
	a.answer([]registry.Key{web}, map[registry.Key][]netip.Addr{web: {netip.MustParseAddr("240.240.0.1")}}, nil)
	if !a.only(wanted) {
		t.Error("the answer is there and not fetched, and nothing is to be waited for")
	}
	if got, err := a.Allocate(t.Context(), []registry.Key{web}); err != nil || len(got[web]) != 1 {
		t.Errorf("got %v, %v; want the answer", got, err)
	}
	if a.only(nil) {
		t.Error("something is to be waited for, and nothing is wanted")
	}
}
