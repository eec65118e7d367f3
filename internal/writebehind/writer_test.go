package writebehind

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk notes what is saved.
type disk struct {
	mu    sync.Mutex
	calls []map[string]string // guarded by mu
	err   error               // guarded by mu
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *disk) save(_ context.Context, records map[string][]byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	call := map[string]string{}
	for name, b := range records {
		if call[name] = "removed"; b != nil {
			call[name] = string(b)
		}
	}
	d.calls = append(d.calls, call)
	return nil
}

func text(s string) Encode { return func() ([]byte, error) { return []byte(s), nil } }

// run runs a test with a Writer, and returns what was logged.
func run(t *testing.T, d *disk, test func(w *Writer)) string {
	t.Helper()
	var log strings.Builder
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Save: d.save, What: "test", Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		test(w)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return log.String()
}

func TestWriter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		test func(*Writer)
		want []map[string]string
	}{
		{"records of a short time are one call", func(w *Writer) {
			w.Put(map[string]Encode{"a": text("1"), "b": text("1")})
			time.Sleep(50 * time.Millisecond)
			w.Put(map[string]Encode{"a": text("2"), "c": nil})
			time.Sleep(time.Second)
			w.Put(map[string]Encode{"b": nil})
			time.Sleep(time.Second)
		}, []map[string]string{{"a": "2", "b": "1", "c": "removed"}, {"b": "removed"}}},
		{"what is left at the end", func(w *Writer) {
			w.Put(map[string]Encode{"a": text("1")})
		}, []map[string]string{{"a": "1"}}},
		{"a record that cannot be encoded", func(w *Writer) {
			w.Put(map[string]Encode{"a": func() ([]byte, error) { return nil, errors.New("bad") }, "b": text("1")})
			time.Sleep(time.Second)
			w.Put(map[string]Encode{"b": text("2")})
			time.Sleep(time.Second)
		}, []map[string]string{{"b": "1"}, {"b": "2"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := &disk{}
			run(t, d, c.test)
			if diff := cmp.Diff(c.want, d.calls); diff != "" {
				t.Errorf("calls of save (-want +got):\n%s", diff)
			}
		})
	}
}

// A failure is logged once when it begins and once when it ends. What is put meanwhile replaces
// what was put before.
// Many records are saved in parts; those of a part that cannot be saved stay pending.
func TestParts(t *testing.T) {
	t.Parallel()
	d := &disk{err: errors.New("disk full")}
	log := hclog.NewNullLogger()
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Save: d.save, What: "test", Log: log, Part: 2})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		w.Put(map[string]Encode{"a": text("1"), "b": text("1"), "c": nil, "d": text("1"), "e": text("1")})
		time.Sleep(time.Minute)
		d.fail(nil)
		time.Sleep(time.Minute)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	got := map[string]string{}
	for _, call := range d.calls {
		if len(call) > 2 {
			t.Errorf("%d records were saved at once, want 2 at most", len(call))
		}
		maps.Copy(got, call)
	}
	want := map[string]string{"a": "1", "b": "1", "c": "removed", "d": "1", "e": "1"}
	if diff := cmp.Diff(want, got); diff != "" || len(d.calls) != 3 {
		t.Errorf("%d calls, want 3 with all records (-want +got):\n%s", len(d.calls), diff)
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	d := &disk{err: errors.New("disk full")}
	log := run(t, d, func(w *Writer) {
		w.Put(map[string]Encode{"a": text("1"), "b": text("1")})
		time.Sleep(time.Minute)
		w.Put(map[string]Encode{"a": text("2")})
		time.Sleep(time.Minute)
		if since, err := w.Err(); err == nil || time.Since(since) < time.Minute {
			t.Errorf("the error is %v since %v, want one since two minutes ago", err, since)
		}
		d.fail(nil)
		time.Sleep(time.Minute)
		if _, err := w.Err(); err != nil {
			t.Errorf("the error is %v after saving succeeded", err)
		}
	})
	want := []map[string]string{{"a": "2", "b": "1"}}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("calls of save (-want +got):\n%s", diff)
	}
	for _, message := range []string{"cannot save", "saved again"} {
		if n := strings.Count(log, message); n != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", message, n, log)
		}
	}
}
