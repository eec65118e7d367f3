package push

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// selector are the labels that something asks for, sorted by name, names unique.
type selector []Label

// selectorOf is that of a Gateway.
func selectorOf(gateway *config.Object) selector {
	labels := gateway.Spec.(*networking.Gateway).Selector
	out := make(selector, 0, len(labels))
	for name, value := range labels {
		out = append(out, Label{name, value})
	}
	slices.SortFunc(out, func(a, b Label) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// String is the same for equal selectors alone.
func (s selector) String() string {
	var b strings.Builder
	for _, l := range s {
		b.WriteString(strconv.Quote(l.Key))
		b.WriteString(strconv.Quote(l.Value))
	}
	return b.String()
}

// value is that of the label of a name.
func (s selector) value(name string) (string, bool) {
	for _, l := range s {
		if l.Key == name {
			return l.Value, true
		}
	}
	return "", false
}

// selectorIndex keeps one value for each of many selectors, and finds one by what it selects without a look at those
// that select others. A nil index is empty.
type selectorIndex[T any] struct {
	value T
	full  bool // value is set
	// branches are the labels that longer selectors have next, sorted by name, so that what is found does not depend
	// on who came first.
	branches []*labelBranch[T]
}

// labelBranch are the selectors that have a label.
type labelBranch[T any] struct {
	name   string
	values []labelValue[T] // sorted by value
}

// labelValue are those in which it has one value.
type labelValue[T any] struct {
	value string
	next  *selectorIndex[T]
}

// with adds v for a selector, unless it has a value, and returns the index.
func (x *selectorIndex[T]) with(s selector, v T) *selectorIndex[T] {
	if x == nil {
		x = &selectorIndex[T]{}
	}
	at := x
	for _, l := range s {
		at = at.branch(l.Key).at(l.Value)
	}
	if !at.full {
		at.value, at.full = v, true
	}
	return x
}

// branch is where a label is, made if need be.
func (x *selectorIndex[T]) branch(name string) *labelBranch[T] {
	i, ok := x.find(name)
	if !ok {
		x.branches = slices.Insert(x.branches, i, &labelBranch[T]{name: name})
	}
	return x.branches[i]
}

func (x *selectorIndex[T]) find(name string) (int, bool) {
	return slices.BinarySearchFunc(x.branches, name, func(b *labelBranch[T], name string) int { return cmp.Compare(b.name, name) })
}

// at is where a value of the label is, made if need be.
func (b *labelBranch[T]) at(value string) *selectorIndex[T] {
	i, ok := b.find(value)
	if !ok {
		b.values = slices.Insert(b.values, i, labelValue[T]{value, &selectorIndex[T]{}})
	}
	return b.values[i].next
}

func (b *labelBranch[T]) find(value string) (int, bool) {
	return slices.BinarySearchFunc(b.values, value, func(v labelValue[T], value string) int { return cmp.Compare(v.value, value) })
}

// having are the values of the label that s allows: its own, or all when it says nothing of the label.
func (b *labelBranch[T]) having(s selector) []labelValue[T] {
	value, ok := s.value(b.name)
	if !ok {
		return b.values
	}
	if i, ok := b.find(value); ok {
		return b.values[i : i+1]
	}
	return nil
}

// wider finds the value of a selector that selects everything which s does; zero: there is none.
func (x *selectorIndex[T]) wider(s selector) T {
	v, _ := x.widerFrom(s)
	return v
}

func (x *selectorIndex[T]) widerFrom(s selector) (v T, ok bool) {
	if x == nil || x.full {
		return x.get()
	}
	for i, l := range s {
		n, ok := x.find(l.Key)
		if !ok {
			continue
		}
		for _, next := range x.branches[n].having(s[i : i+1]) {
			if v, ok := next.next.widerFrom(s[i+1:]); ok {
				return v, true
			}
		}
	}
	return v, false
}

// meeting finds the value of a selector whose labels a workload may have together with those of s; zero: there is
// none.
func (x *selectorIndex[T]) meeting(s selector) T {
	v, _ := x.meetingFrom(s)
	return v
}

func (x *selectorIndex[T]) meetingFrom(s selector) (v T, ok bool) {
	if x == nil || x.full {
		return x.get()
	}
	for _, b := range x.branches {
		for _, next := range b.having(s) {
			if v, ok := next.next.meetingFrom(s); ok {
				return v, true
			}
		}
	}
	return v, false
}

// get is the value here, if there is one.
func (x *selectorIndex[T]) get() (v T, ok bool) {
	if x == nil {
		return v, false
	}
	return x.value, x.full
}

// selectsAll says whether wide selects everything that narrow does.
func selectsAll(wide, narrow map[string]string) bool {
	for k, v := range wide {
		if have, ok := narrow[k]; !ok || have != v {
			return false
		}
	}
	return true
}
