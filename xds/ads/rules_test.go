package ads_test

import (
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// script plays one subscription, a line each step:
//
//	to a=1 b=2        what the client should have from now on
//	sub a b / unsub a a request for names; "sub" alone asks for nothing by name
//	claim a=1 b=0 c   the first request of a stream, with the versions of these texts; c has none
//	states N a b      state of the world: a request for names with nonce N: "none", "junk", "last" or "first"
//	ack / nack WORDS  the answer to the last response; "ack first", "nack first WORDS" to the one before it
//	new               a new stream
//	hold a / lag a    from now on removals, or changes, of these names wait
//	> a=1 -b          the next response; "> none" and "> empty" too
type script struct {
	*peer
	to        resource.Set
	last      *response
	before    *response
	held      []string
	versionOf string
}

func (s *script) run(lines string) {
	s.t.Helper()
	s.hold = func(name string) bool { return slices.Contains(s.held, name) }
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if got, want, ok := s.step(f); !ok {
			s.t.Fatalf("line %d %q: got %q, want %q", i+1, strings.TrimSpace(line), got, want)
		}
	}
}

func (s *script) step(f []string) (got, want string, ok bool) {
	s.t.Helper()
	switch f[0] {
	case "to":
		s.to = set(s.kind.TypeURL, f[1:]...)
	case "sub":
		s.delta(s.to, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: f[1:]})
	case "junk":
		s.delta(s.to, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: f[1:], ResponseNonce: "2026-11-21"})
	case "unsub":
		s.delta(s.to, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: f[1:]})
	case "claim":
		m := &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{}}
		for _, it := range f[1:] {
			name, text, some := strings.Cut(it, "=")
			switch {
			case !some:
				m.InitialResourceVersions[name] = ""
			case text == "":
				m.InitialResourceVersions[name] = s.kind.Empty(name).Version()
			default:
				m.InitialResourceVersions[name] = body(s.kind.TypeURL, name, text).Version()
			}
			if !s.kind.Whole {
				m.ResourceNamesSubscribe = append(m.ResourceNamesSubscribe, name)
			}
		}
		s.delta(s.to, m)
	case "states":
		m := &discoveryv3.DiscoveryRequest{ResourceNames: f[2:], VersionInfo: s.versionOf}
		switch f[1] {
		case "junk":
			m.ResponseNonce = "2026-11-21"
		case "last":
			m.ResponseNonce, m.VersionInfo = s.last.nonce, s.last.version
			s.versionOf = s.last.version
		case "first":
			m.ResponseNonce = s.before.nonce
		}
		s.state(s.to, m)
	case "ack":
		s.delta(s.to, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: s.pick(f[1:]).nonce})
	case "nack":
		r, words := s.pick(f[1:]), f[1:]
		if r == s.before {
			words = words[1:]
		}
		if s.states {
			s.state(s.to, &discoveryv3.DiscoveryRequest{ResponseNonce: r.nonce, VersionInfo: s.versionOf,
				ErrorDetail: rejection(strings.Join(words, " "))})
			break
		}
		s.delta(s.to, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.nonce,
			ErrorDetail: rejection(strings.Join(words, " "))})
	case "new":
		s.reconnect()
	case "hold":
		s.held = f[1:]
	case "lag":
		s.lag = func(name string) bool { return slices.Contains(f[1:], name) }
	case ">":
		r := s.next(s.to)
		if r != nil {
			s.before, s.last = s.last, r
		}
		got, want = r.String(), strings.Join(f[1:], " ")
		return got, want, got == want
	default:
		s.t.Fatalf("unknown step %q", f[0])
	}
	return "", "", true
}

func (s *script) pick(f []string) *response {
	if len(f) > 0 && f[0] == "first" {
		return s.before
	}
	return s.last
}

// Each case is one rule of the protocol or of Envoy.
func TestRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind   func() *ads.Kind
		states bool
		script string
	}{
		// A first request without names asks for everything, and is answered even with nothing.
		"wildcard":       {clusters, false, "to a=1 b=1\n sub\n > a=1 b=1\n ack\n > none"},
		"wildcard empty": {clusters, false, "to\n sub\n > empty\n ack\n > none"},
		"star":           {clusters, false, "to a=1\n sub *\n > a=1\n ack\n unsub *\n to a=2\n > none"},
		// Only clusters, listeners and the like have a wildcard.
		"no wildcard": {routes, false, "to a=1\n sub\n > none\n sub a\n > a=1"},
		// Only what changed is sent; an equal set costs nothing.
		"difference": {listeners, false, "to a=1 b=1 c=1\n sub\n > a=1 b=1 c=1\n ack\n to a=1 b=2 d=1\n > b=2 d=1 -c\n ack\n to a=1 b=2 d=1\n > none"},
		// One response in flight: ten missed contexts cost one comparison.
		"one in flight": {listeners, false, "to a=1\n sub\n > a=1\n to a=2\n > none\n to a=3\n > none\n ack\n > a=3\n ack\n > none"},
		// Clusters are superseded while their acknowledgement is withheld.
		"superseded": {clusters, false, "to a=1\n sub\n > a=1\n to a=2 b=1\n > a=2 b=1\n ack first\n ack\n > none"},
		// A name that is superseded is judged by what was sent last.
		"superseded rejection": {clusters, false, "to a=1\n sub\n > a=1\n to a=2\n > a=2\n nack first a: bad\n > none\n ack\n > none"},
		// A rejected version is not sent again until it changes: Envoy would reject it for ever.
		"refused": {listeners, false, "to a=1\n sub\n > a=1\n nack a: bad\n > none\n to a=1 b=1\n > b=1\n ack\n to a=2 b=1\n > a=2\n ack\n > none"},
		// It is removed when it is gone, although nobody can tell whether the client has any of it.
		"refused and gone": {listeners, false, "to a=1\n sub\n > a=1\n ack\n to a=2\n > a=2\n nack bad\n > none\n to\n > -a\n ack\n > none"},
		// What the client's message names is the culprit, the rest is sent again.
		"culprit named": {listeners, false, "to a=1 b=1 c=1\n sub\n > a=1 b=1 c=1\n nack Error adding listener b: bad\n > a=1 c=1\n ack\n > none"},
		// Without a name one resource is sent at a time, until the culprit is alone.
		"culprit found": {listeners, false, "to a=1 b=1 c=1\n sub\n > a=1 b=1 c=1\n nack oh\n > a=1\n ack\n > b=1\n nack oh\n > c=1\n ack\n > none"},
		// Each time the latest version is sent.
		"repaired meanwhile": {listeners, false, "to a=1 b=1\n sub\n > a=1 b=1\n nack oh\n to a=1 b=2\n > a=1\n ack\n > b=2\n ack\n > none"},
		"changed meanwhile":  {listeners, false, "to a=1 b=1\n sub\n > a=1 b=1\n nack oh\n > a=1\n to a=2 b=1\n ack\n > b=1\n ack\n > a=2\n ack\n > none"},
		"gone meanwhile":     {listeners, false, "to a=1 b=1\n sub\n > a=1 b=1\n nack oh\n to b=1\n > -a\n ack\n > b=1\n ack\n > none"},
		// On a new stream claims are believed: what is equal is not sent, what is stale is removed.
		"claims equal":   {clusters, false, "to a=1 b=1\n claim a=1 b=1\n > none\n to a=1 b=2\n > b=2"},
		"claims differ":  {clusters, false, "to a=1 b=2 d=1\n claim a=1 b=1 c=1\n > b=2 d=1 -c\n ack\n > none"},
		"claims by name": {routes, false, "to a=1 b=1\n claim a=1 b=0\n > b=1\n ack\n > none"},
		"claims of gone": {routes, false, "to a=1\n claim a=1 b=1\n > -b\n ack\n > none"},
		// An agent claims no version for a name that it knows not to exist.
		"claims of nothing": {clusters, false, "to a=1\n claim a=1 b\n > none"},
		// Late and foreign answers are ignored.
		"stale answer": {listeners, false, "to a=1\n sub\n > a=1\n ack\n to a=2\n > a=2\n nack first oh\n > none\n ack\n > none"},
		// A nonce that was never sent counts as none.
		"foreign nonce": {clusters, false, "to a=1\n junk\n > a=1\n junk\n > none\n ack\n > none"},
		// Names are added and dropped at any time; what is named again is sent again.
		"added":        {routes, false, "to a=1 b=1\n sub a\n > a=1\n ack\n sub b\n > b=1\n ack\n > none"},
		"named again":  {routes, false, "to a=1\n sub a\n > a=1\n ack\n sub a\n > a=1\n ack\n > none"},
		"dropped":      {routes, false, "to a=1 b=1\n sub a b\n > a=1 b=1\n ack\n unsub b\n to a=1 b=2\n > none\n sub b\n > b=2"},
		"unknown name": {routes, false, "to a=1\n sub a x\n > a=1 -x\n ack\n to a=1 x=1\n > x=1"},
		"on demand":    {clusters, false, "to a=1\n sub *\n > a=1\n ack\n sub x\n > -x\n ack\n to a=1 x=1\n > x=1"},
		// Endpoints always answer, with an empty assignment if need be.
		"endpoints unknown": {endpoints, false, "to a=1\n sub a x\n > a=1 x=\n ack\n to a=1\n > none\n to a=1 x=1\n > x=1\n ack\n to a=1\n > x=\n ack\n > none"},
		"endpoints claimed": {endpoints, false, "to a=1\n claim a=1 x=\n > none"},
		// Endpoints of a removed cluster stay as long as it does, also when it went between two streams.
		"endpoints kept": {endpoints, false, "to a=1\n hold x\n claim a=1 x=1\n > none\n hold\n > x=\n ack\n > none"},
		// Secrets are sent one by one, so that a rejection says which one it is.
		"single":         {secrets, false, "to a=1 b=1 c=1\n sub a b c\n > a=1\n > b=1\n > c=1\n > none\n ack\n > none\n to a=2 b=1\n > -c\n > a=2\n ack\n > none"},
		"single removed": {secrets, false, "to a=1 b=1 c=1\n sub a b c\n > a=1\n > b=1\n > c=1\n ack\n to a=2 b=2\n > -c\n > a=2\n > b=2\n ack\n > none"},
		"single refused": {secrets, false, "to a=1 b=1\n sub a b\n > a=1\n > b=1\n nack first no such file\n ack\n > none\n to a=2 b=1\n > a=2\n ack\n > none"},
		"single states":  {secrets, true, "to a=1 b=1\n states none a b\n > a=1\n > b=1\n states last a b\n > none\n to a=1 b=2\n > b=2"},
		// Removals wait as long as they have to, and not when the name comes back.
		"kept":     {clusters, false, "to a=1 b=1\n sub\n > a=1 b=1\n ack\n hold b\n to a=2\n > a=2\n ack\n > none\n hold\n > -b\n ack\n > none"},
		"kept not": {clusters, false, "to a=1 b=1\n sub\n > a=1 b=1\n ack\n hold b\n to a=1\n > none\n to a=1 b=1\n > none\n hold\n > none"},

		// State of the world: clusters and listeners whole, other types what changed.
		"states whole":   {listeners, true, "to a=1 b=1\n states none\n > a=1 b=1\n states last\n > none\n to a=1 b=2\n > a=1 b=2\n states last\n to b=2\n > b=2"},
		"states partial": {endpoints, true, "to a=1 b=1\n states none a b\n > a=1 b=1\n states last a b\n to a=1 b=2\n > b=2\n states last a b\n > none"},
		"states empty":   {listeners, true, "to\n states none\n > empty\n states last\n > none"},
		"states added":   {endpoints, true, "to a=1 b=1\n states none a\n > a=1\n states last a\n states last a b\n > b=1"},
		"states dropped": {endpoints, true, "to a=1 b=1\n states none a b\n > a=1 b=1\n states last a\n states last a b\n > b=1"},
		"states kept":    {clusters, true, "to a=1 b=1\n states none\n > a=1 b=1\n states last\n hold b\n to a=2\n > a=2 b=1\n states last\n hold\n > a=2"},
		"states again":   {clusters, true, "to a=1 b=1\n states none\n > a=1 b=1\n states last\n new\n states none\n > a=1 b=1\n states last\n to a=2 b=1\n > a=2 b=1"},
		"states stale":   {listeners, true, "to a=1\n states none\n > a=1\n states last\n to a=2\n > a=2\n states first\n > none\n states last\n > none"},
		// A deferred change stands in a whole set as the client has it.
		"states deferred": {listeners, true, "to a=1\n states none\n > a=1\n states last\n lag a c\n to a=2 b=1 c=1\n > a=1 b=1\n states last\n > none\n lag\n > a=2 b=1 c=1"},
		// What the client rejected stands in the next whole set again: without it the client would lose
		// what it has.
		"states rejected": {listeners, true, "to a=1 b=1\n states none\n > a=1 b=1\n states last\n to a=2 b=2 c=1\n > a=2 b=2 c=1\n nack a: bad\n > none\n to a=2 b=2 c=2\n > a=2 b=2 c=2\n states last\n to a=3 b=2 c=2\n > a=3 b=2 c=2"},
		"states unnamed":  {listeners, true, "to a=1 b=1\n states none\n > a=1 b=1\n nack oh\n > none\n to a=1 b=2\n > a=1 b=2"},
		// Some clients' first request carries a nonce of their own.
		"states junk": {listeners, true, "to a=1\n states junk\n > a=1\n states last\n > none\n to a=2\n > a=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{peer: newPeer(t, tc.kind(), tc.states)}
			s.run(tc.script)
		})
	}
}
