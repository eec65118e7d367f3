package lastgood

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// What cannot be made is a problem until it can, or is outdated, and holds up nothing else.
func TestFlushUnmade(t *testing.T) {
	t.Parallel()
	m := &memory{all: map[string][]byte{}}
	w := NewWriter(m, "test", Pace{}, hclog.NewNullLogger())
	text := func(s string) Content { return func() ([]byte, error) { return []byte(s), nil } }
	w.Put(map[string]Content{"a": func() ([]byte, error) { return nil, errors.New("odd") }, "b": text("b")})
	for range 2 {
		if err := w.flush(t.Context()); err == nil || !strings.Contains(err.Error(), "keep a: odd") {
			t.Errorf("got %v, want an error of a", err)
		}
	}
	if string(m.all["b"]) != "b" || len(m.all) != 1 {
		t.Errorf("kept is %q, want b alone", m.all)
	}
	w.Put(map[string]Content{"a": text("a"), "b": nil})
	if err := w.flush(t.Context()); err != nil || string(m.all["a"]) != "a" || len(m.all) != 1 {
		t.Errorf("got %v, kept %q; want a alone", err, m.all)
	}
}
