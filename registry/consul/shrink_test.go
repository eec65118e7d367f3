package consul

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// shrinking is a narrow Consul that, once there is a limit, refuses more questions at a time.
type shrinking struct {
	*narrow

	mu        sync.Mutex
	limit, at int // guarded by mu; a limit of zero is none
}

// shrink has there be a limit.
func (s *shrinking) shrink(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
}

// enter says whether there may be one more question.
func (s *shrinking) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit > 0 && s.at >= s.limit {
		return false
	}
	s.at++
	return true
}

func (s *shrinking) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at--
}

func (s *shrinking) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.enter() {
		return resp(r, http.StatusTooManyRequests, 0, false, "Your IP is issuing too many concurrent connections"), nil
	}
	defer s.leave()
	return s.narrow.RoundTrip(r)
}

// Where turns begin because Consul takes fewer connections than it did, what waits for long since before leaves its connection to others,
// whatever it waits for: an instance that becomes critical is heard of soon in every place.
func TestTurnsBeginLate(t *testing.T) {
	t.Parallel()
	for try := range 6 { // which of the queries are refused is left to chance
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, testTurnsBeginLate)
		})
	}
}

func testTurnsBeginLate(t *testing.T) {
	var datacenters []string
	for i := range 8 {
		datacenters = append(datacenters, fmt.Sprintf("x%d", i))
	}
	s := &shrinking{narrow: newNarrow(100)}
	f := lookOver(t, s, Options{Datacenters: datacenters}, lastgood.Config[registry.Instances]{})
	defer f.end()
	time.Sleep(15 * time.Second)
	if f.tells("are asked by turns") != 0 {
		t.Fatalf("there are turns where there are connections for all: %v", f.problems())
	}
	s.shrink(12)
	time.Sleep(11*time.Minute + 45*time.Second) // the waits of before have ended, and what was asked then was refused
	if f.tells("are asked by turns") != 1 {
		t.Fatalf("there are no turns: %v", f.problems())
	}
	for _, dc := range datacenters {
		close(s.goesDown(dc))
	}
	time.Sleep(2 * time.Minute)
	for _, dc := range datacenters {
		if got := f.state("web.service." + dc + ".consul"); got != "unhealthy" {
			t.Errorf("two minutes after it became critical in %s it is %q", dc, got)
		}
	}
}
