package lastgood

import (
	"errors"
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
