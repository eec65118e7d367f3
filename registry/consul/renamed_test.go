package consul

import (
	"context"
	"testing"
	"time"
)

// A service is asked for when another one has an instance that it had: whoever waits for its change waits in vain.
func TestClaim(t *testing.T) {
	t.Parallel()
	sc := newScope(place{}, 1)
	for _, name := range []string{"old", "new"} {
		sc.services[name] = sc.newService(name)
	}
	before, after := sc.services["old"], sc.services["new"]
	asked := func(s *service) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		whole, atLeast, ok := s.pokes.wait(ctx)
		return ok && whole && atLeast == 1 && s.stop.interrupted()
	}
	a, b, c := instanceID{"n1", "a"}, instanceID{"n1", "b"}, instanceID{"n2", "a"}
	sc.claim(before, nil, []instanceID{a, b})
	if asked(before) || asked(after) {
		t.Error("new instances have somebody asked for")
	}
	sc.claim(after, nil, []instanceID{b, c})
	if !asked(before) || asked(after) {
		t.Error("the one that had it is not asked for, or the other one is")
	}
	sc.claim(before, []instanceID{a, b}, []instanceID{a})
	sc.claim(after, []instanceID{b, c}, nil)
	sc.claim(before, []instanceID{a}, []instanceID{a, b})
	if asked(before) || asked(after) || len(sc.bearers) != 2 {
		t.Errorf("what has left has somebody asked for: %v", sc.bearers)
	}
	delete(sc.services, "old")
	sc.claim(after, nil, []instanceID{a})
	if asked(after) || sc.bearers[a] != "new" {
		t.Errorf("one that is gone counts: %v", sc.bearers)
	}
}

// A service is called by the name that it was registered by, whatever is in that.
func TestObject(t *testing.T) {
	t.Parallel()
	for want, tc := range map[string]struct {
		at   place
		name string
	}{
		"Consul service web":          {place{}, "web"},
		"Consul service dc2/team/a/b": {place{Datacenter: "dc2", Namespace: "team"}, "a/b"},
		"Consul service x%2Fy":        {place{}, "x%2Fy"},
	} {
		if got := tc.at.object(tc.name); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
