package memo_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashore-mesh/ashore/internal/memo"
)

type result struct{ n [64]int }

// One input is computed once while the result is in use, also by concurrent callers.
func TestComputesOnce(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	f := memo.New(func(in int) *result {
		calls.Add(1)
		return &result{n: [64]int{in}}
	})
	var wg sync.WaitGroup
	results := make([]*result, 32)
	for i := range results {
		wg.Go(func() { results[i] = f.Get(7) })
	}
	wg.Wait()
	for _, r := range results {
		if r != results[0] {
			t.Fatal("one input gave two pointers")
		}
	}
	if calls.Load() != 1 {
		t.Errorf("computed %d times, want 1", calls.Load())
	}
	if f.Get(8) == results[0] {
		t.Error("two inputs gave one pointer")
	}
	runtime.KeepAlive(results)
}

// A result that is no longer in use is dropped, and computed again on request.
func TestForgetsWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	f := memo.New(func(in int) *result { return &result{n: [64]int{in}} })
	for i := range 1000 {
		f.Get(i)
	}
	for range 100 {
		runtime.GC()
		if f.Len() == 0 {
			break
		}
	}
	if n := f.Len(); n != 0 {
		t.Errorf("%d results remembered, nobody holds one", n)
	}
	if got := f.Get(3).n[0]; got != 3 {
		t.Errorf("computed again: got %d, want 3", got)
	}
}

// A panic reaches the caller, and the next call computes again.
func TestPanicIsNotRemembered(t *testing.T) {
	t.Parallel()
	fail := true
	f := memo.New(func(int) *result {
		if fail {
			panic("no")
		}
		return &result{}
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not reach the caller")
			}
		}()
		f.Get(1)
	}()
	fail = false
	if f.Get(1) == nil {
		t.Error("no result after the panic")
	}
}
