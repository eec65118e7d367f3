package task

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

// wait is a part that does as it should.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		parts []Part
		want  error
		text  string // part of the error
	}{
		{"no parts", nil, nil, ""},
		// A part that is done does not end the others: they end with the context, after a second
		// here.
		{"done early", []Part{{"quick", func(context.Context) error { return nil }}, {"slow", wait}}, context.DeadlineExceeded, ""},
		// A failure ends everything and is told with the part's name.
		{"failure", []Part{{"files", func(context.Context) error { return errBroken }}, {"slow", wait}}, nil, "files: broken"},
		// What fails because everything ends is not the reason.
		{"first failure counts", []Part{
			{"a", func(ctx context.Context) error { <-ctx.Done(); return errors.New("late") }},
			{"b", func(context.Context) error { return errBroken }},
		}, nil, "b: broken"},
		// A panic is an error with the stack, not the end of the process.
		{"panic", []Part{{"xds", func(context.Context) error { panic(errBroken) }}, {"slow", wait}}, nil, "xds: panic: broken\ngoroutine "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := Run(ctx, tc.parts...)
				switch {
				case tc.text == "" && err != nil:
					t.Fatalf("error %v, want none", err)
				case tc.text != "" && (err == nil || !strings.Contains(err.Error(), tc.text)):
					t.Fatalf("error %v, want one with %q", err, tc.text)
				case tc.text != "" && !errors.Is(err, errBroken):
					t.Fatalf("error %v does not wrap the part's", err)
				}
				if tc.want != nil && !errors.Is(ctx.Err(), tc.want) {
					t.Fatalf("ended with context error %v, want %v: a part was not waited for", ctx.Err(), tc.want)
				}
			})
		})
	}
}

// Each change reaches all who watch, and several may arrive as one. Who has stopped gets none.
func TestBroadcaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b Broadcaster
		ctx, stop := context.WithCancel(t.Context())
		one, two := b.Watch(ctx), b.Watch(t.Context())
		b.Notify()
		b.Notify()
		if len(one) != 1 || len(two) != 1 {
			t.Errorf("received %d and %d, want 1 each", len(one), len(two))
		}
		<-one
		<-two
		stop()
		synctest.Wait()
		b.Notify()
		if len(one) != 0 || len(two) != 1 {
			t.Errorf("received %d and %d, want 0 and 1", len(one), len(two))
		}
	})
}
