package lastgood

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// What lapsed is removed though the disk does not take what else is to be written, and that is told and tried on. What is put again under
// its name has to do with the rest again.
func TestFlushLapsed(t *testing.T) {
	t.Parallel()
	m := &memory{all: map[string][]byte{"a": {1}, "b": {1}, "c": {1}}, room: 5}
	w := NewWriter(m, "test", Pace{}, hclog.NewNullLogger())
	text := func(s string) Content { return func() ([]byte, error) { return []byte(s), nil } }
	check := func(full bool, want string) {
		t.Helper()
		if err := w.flush(t.Context()); (err != nil) != full {
			t.Errorf("with the disk full %v: %v", full, err)
		}
		if got := strings.Join(slices.Sorted(maps.Keys(m.all)), " "); got != want {
			t.Errorf("kept are %s, want %s", got, want)
		}
	}
	w.Put(map[string]Content{"big": text("too large"), "a": nil}, "b")
	check(true, "a c")
	check(true, "a c")
	w.Put(nil, "c")
	m.set(true)
	check(true, "a c") // not even that
	m.set(false)
	check(true, "a")
	w.Put(nil, "a")
	w.Put(map[string]Content{"a": text("new"), "d": text("d")})
	check(true, "a")
	w.Put(map[string]Content{"big": text("small"), "a": nil}, "d")
	check(false, "big")
}

// Who waits until all is written waits for what was put before, through a full disk too, and no longer than somebody writes.
func TestWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		w := NewWriter(m, "test", Pace{}, hclog.NewNullLogger())
		if !w.Written() {
			t.Error("nothing was put, and it is not written")
		}
		go w.Run(t.Context())
		for i, full := range []bool{false, true} {
			m.set(true)
			w.Put(map[string]Content{"a": func() ([]byte, error) { return []byte{byte(i)}, nil }})
			written := make(chan bool, 1)
			go func() { written <- w.Written() }()
			time.Sleep(time.Minute)
			if m.set(full); full {
				w.End()
			}
			if got := <-written; got == full {
				t.Errorf("with the disk full to the end %v, it was written %v", full, got)
			}
		}
		if got := m.all["a"]; len(got) != 1 || got[0] != 0 {
			t.Errorf("kept is %v, want the first", got)
		}
	})
}
