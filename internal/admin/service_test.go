package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// shelf has one service, and with a watch goes on until its context ends.
type shelf struct{ entered chan struct{} }

func (s *shelf) Services(ctx context.Context, q ServiceQuery, emit func(ServiceEvent) error) error {
	if q.Host == "none" {
		return NewError(ErrNotFound, "the mesh knows no service")
	}
	if err := emit(ServiceEvent{ServiceIs, shelved(q)}); err != nil || !q.Watch {
		return err
	}
	if err := emit(ServiceEvent{Event: ServicesListed}); err != nil {
		return err
	}
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	<-ctx.Done()
	return nil
}

// shelved is a service that tells what it was asked for with.
func shelved(q ServiceQuery) Service {
	return Service{
		Host: "web", Namespace: "shop", Labels: map[string]string{"asked": fmt.Sprintf("%+v",
			q)}, Ports: []ServicePort{{80, "http", "HTTP"}},
		Sources: []ServiceSource{{Place: Place{Source: "files", File: "a.yaml", Line: 3},
			Endpoints: 1}}, Health: HealthCount{Healthy: 1},
		Endpoints: []Endpoint{{Address: "10.0.0.1", Health: "healthy", Ports: []EndpointPort{{80, "http", 8080}},
			From: Place{Source: "dc1"}}},
	}
}

func serveShelf(t *testing.T, s *shelf) *Client {
	t.Helper()
	path := socketPath(t)
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	run(t, New(Config{Listener: l, Backend: &fake{}, Catalog: s, Log: testlog.New(t)}))
	return NewClient(path)
}

// What is asked for arrives, and what is told comes back, one service after the other.
func TestServices(t *testing.T) {
	t.Parallel()
	c := serveShelf(t, &shelf{})
	q := ServiceQuery{Namespace: "shop", Host: "web", Endpoints: true}
	var got []ServiceEvent
	if err := c.Services(t.Context(), q, func(e ServiceEvent) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]ServiceEvent{{ServiceIs, shelved(q)}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := c.Services(t.Context(), ServiceQuery{Host: "none"}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("a service that there is not: %v", err)
	}
	for _, query := range []string{"watch=perhaps", "endpoints=2x"} {
		if code := statusOf(t, c, "GET /v1/services?"+query); code != 400 {
			t.Errorf("%s: status %d", query, code)
		}
	}
	if err := serveAll(t, &recorder{}, nil).Services(t.Context(), q, nil); !errors.Is(err, ErrNotSetUp) {
		t.Errorf("without a catalog: %v", err)
	}
}

// So many may watch, and one more is told so; who ends makes room. What is listed beside them goes
// on.
func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	s := &shelf{entered: make(chan struct{})}
	c := serveShelf(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, maxStreams)
	for range maxStreams {
		go func() {
			ended <- c.Services(ctx, ServiceQuery{Watch: true}, func(ServiceEvent) error { return nil })
		}()
		<-s.entered
	}
	err := c.Services(t.Context(), ServiceQuery{Watch: true}, nil)
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "16 streams follow") {
		t.Errorf("one too many: %v", err)
	}
	if err := c.Services(t.Context(), ServiceQuery{}, func(ServiceEvent) error { return nil }); err != nil {
		t.Errorf("a list beside them: %v", err)
	}
	cancel()
	for range maxStreams {
		if err := <-ended; err != nil {
			t.Errorf("a watch that was ended: %v", err)
		}
	}
}
