package consul

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// Who goes by other settings to another Consul, which is away, does not begin with what the first
// one had; that is another mesh's, say.
func TestCopyOfAnother(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	kept := newShelf()
	a, end := s.start(t, kept)
	put(t, a, "revoked", "mallory")
	end()
	away := newBetween(t, s.address)
	away.losing(func(string, []byte) fate { return unheard })
	s.address = away.URL
	c := s.config(t, kept)
	c.Patience = time.Second
	if b, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "never read it") {
		t.Errorf("got %v, want that nothing stands in", err)
		if err == nil {
			t.Errorf("it reads %q", valueOf(t, b, "revoked"))
		}
	}
}

// Stores at different places have different names, and copies; one place has one name, however it
// is written.
func TestPlaces(t *testing.T) {
	t.Parallel()
	names := map[string]Options{}
	for _, o := range []Options{
		{Prefix: "a"},
		{Prefix: "a", Address: "https://127.0.0.1:8500"},
		{Prefix: "a", Address: "http://consul.example:8500"},
		{Prefix: "a", Address: "unix:///run/consul.sock"},
		{Prefix: "a", Datacenter: "x"},
		{Prefix: "a", Partition: "x"},
		{Prefix: "a", Namespace: "x"},
		{Prefix: "a", Namespace: "x", Partition: "x"},
		{Prefix: "a", Address: "http://consul.example:8500", Datacenter: "x"},
		{Prefix: "b"},
	} {
		if other, twice := names[copyName(o)]; twice {
			t.Errorf("%+v and %+v have one copy, %s", other, o, copyName(o))
		}
		names[copyName(o)] = o
	}
	for one, other := range map[string]string{"": "http://127.0.0.1:8500/", "https://a.test": "https://a.test:8501"} {
		a, b := Options{Prefix: "a", Address: one}, Options{Prefix: "a", Address: other}
		if copyName(a) != copyName(b) {
			t.Errorf("%s and %s are one place, and have the copies %s and %s", one, other, copyName(a), copyName(b))
		}
	}
	s := &Store{cfg: Config{Options: Options{Prefix: "ashore/cluster.local", Datacenter: "dc2"}}}
	if got := s.Name(); got != "store:consul:ashore/cluster.local@datacenter dc2" {
		t.Errorf("it is called %q", got)
	}
}

// The age of the copy, and of what is known in an outage, counts from when Consul was last there
// and not from the last change: in touch it is written down once a minute, and then when the outage
// begins.
func TestCopyTouched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		kept, log := newShelf(), testlog.New(t)
		cfg := Config{Options: Options{Prefix: "copy"}, Kept: kept, Log: log}
		s := &Store{turn: make(chan struct{}, 1), copy: newCopy(cfg)}
		s.state.Store(&state{})
		asOf := func() time.Time {
			t.Helper()
			time.Sleep(2 * copyGap)
			contents, err := kept.LoadGroups(ctx, copyName(cfg.Options))
			var about aboutCopy
			if err == nil {
				err = json.Unmarshal(contents[copyAbout], &about)
			}
			if err != nil {
				t.Errorf("read the copy: %v", err)
			}
			return about.AsOf
		}
		written, touched := make(chan struct{}), make(chan struct{})
		go func() { defer close(written); s.copy.Run(ctx) }() //nolint:errcheck // it has none
		go func() { defer close(touched); s.touchCopy(ctx) }()
		s.standing.well(log)
		next := &state{}
		next.Log = "log"
		s.publish(next)
		time.Sleep(time.Hour + 50*time.Second)
		if age := time.Since(asOf()); age > copyTouch {
			t.Errorf("in touch, the copy is said to be %v old", age)
		}

		began := time.Now()
		s.standing.broken(began)
		time.Sleep(5 * time.Second)
		s.standing.ill(errors.New("away"), log)
		if since := s.Standing().Since; !since.Equal(began) {
			t.Errorf("the outage of %v began at %v", began, since)
		}
		for range 3 {
			if at := asOf(); !at.Equal(began) {
				t.Errorf("in the outage of %v the copy is of %v", began, at)
			}
			time.Sleep(copyTouch)
		}

		over := time.Now()
		s.standing.well(log)
		if at := asOf(); !at.Equal(over) {
			t.Errorf("after the outage the copy is of %v, want %v", at, over)
		}
		time.Sleep(time.Second)
		again := time.Now()
		s.standing.ill(errors.New("away"), log)
		if since := s.Standing().Since; !since.Equal(again) {
			t.Errorf("the next outage, of %v, began at %v", again, since)
		}
		cancel()
		<-touched
		<-written
	})
}
