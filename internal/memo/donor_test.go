package memo_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/memo"
)

type donorIn struct{ base, n int }

// The latest result of the same base is handed over with its input, that of another base never.
func TestDonorHandsOverTheLatest(t *testing.T) {
	t.Parallel()
	type seen struct {
		before *int
		was    donorIn
	}
	var calls []seen
	d := memo.NewDonor(func(in donorIn) int { return in.base }, func(in donorIn, before *int, was donorIn) *int {
		calls = append(calls, seen{before, was})
		return &in.n
	})
	first := d.Get(donorIn{1, 10})
	second := d.Get(donorIn{1, 11})
	other := d.Get(donorIn{2, 12})
	if again := d.Get(donorIn{1, 10}); again != first {
		t.Errorf("a result that is held was made anew")
	}
	want := []seen{{nil, donorIn{}}, {first, donorIn{1, 10}}, {nil, donorIn{}}}
	if len(calls) != len(want) {
		t.Fatalf("f was called %d times, want %d", len(calls), len(want))
	}
	for i := range want {
		if calls[i] != want[i] {
			t.Errorf("call %d got %v, want %v", i, calls[i], want[i])
		}
	}
	runtime.KeepAlive([]*int{first, second, other})
}

// A donor keeps nothing alive.
func TestDonorForgets(t *testing.T) {
	t.Parallel()
	d := memo.NewDonor(func(in donorIn) int { return in.base },
		func(in donorIn, _ *int, _ donorIn) *int { n := new([64]int); return &n[in.n] })
	for i := range 50 {
		d.Get(donorIn{1, i})
	}
	for deadline := time.Now().Add(10 * time.Second); d.Len() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d results are remembered after nobody holds them, want 0", d.Len())
		}
		runtime.GC()
		runtime.Gosched()
	}
}
