package intern_test

import (
	"runtime"
	"testing"

	"github.com/ashore-mesh/ashore/internal/intern"
)

// Equal lists are one pointer, others are not, and the empty list is nil.
func TestIdentity(t *testing.T) {
	t.Parallel()
	var ls intern.Lists[string]
	a := ls.Of([]string{"x", "y"})
	if b := ls.Of([]string{"x", "y"}); a != b {
		t.Error("equal lists are two pointers")
	}
	for _, other := range [][]string{{"y", "x"}, {"xy"}, {"x", "y", ""}, {"x"}} {
		if ls.Of(other) == a {
			t.Errorf("%q is one pointer with [x y]", other)
		}
	}
	if ls.Of(nil) != nil || ls.Of([]string{}) != nil {
		t.Error("an empty list is not nil")
	}
	var none *intern.List[string]
	if none.Len() != 0 || none.Items() != nil {
		t.Error("a nil list is not empty")
	}
	runtime.KeepAlive(a)
}

// A list without references is collected; interning it again works.
func TestCollected(t *testing.T) {
	t.Parallel()
	var ls intern.Lists[int]
	for i := range 100 {
		ls.Of([]int{i})
	}
	runtime.GC()
	runtime.GC()
	a := ls.Of([]int{5})
	if b := ls.Of([]int{5}); a != b || a.Items()[0] != 5 {
		t.Error("a list is not itself after a collection")
	}
}
