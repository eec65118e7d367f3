package gen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Envoy refuses a resource whole, with all that is right in it. Validation keeps out what Envoy
// would refuse; what gets past it, from whatever source, is found here, where each part is built,
// by the rules that the messages carry, and only that part is replaced by one that refuses traffic.

// validated is a message that knows the rules of its fields.
type validated interface{ Validate() error }

// checkAll finds what breaks the rules of messages.
func checkAll(messages ...validated) error {
	for _, m := range messages {
		if err := m.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// checkWrapped finds what breaks the rules of wrapped messages.
func checkWrapped(wrapped map[string]*anypb.Any) error {
	for _, name := range slices.Sorted(maps.Keys(wrapped)) { // the same one of several each time
		a := wrapped[name]
		if a == nil {
			continue
		}
		m, err := a.UnmarshalNew()
		if v, ok := m.(validated); ok && err == nil {
			err = v.Validate()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// refused is a part that Envoy would refuse, as a problem. o is the object that it is made of; nil:
// none.
func refused(o *config.Object, what string, err error) *feed.Problem {
	p := &feed.Problem{Severity: feed.Error, Text: what + ": Envoy would refuse it: " + strings.TrimSpace(err.Error())}
	if o != nil {
		p.Object, p.File, p.Line = o.Key.String(), o.Origin.File, o.Origin.Line
	}
	return p
}

// Refused are the parts that Envoy would refuse, and that refuse traffic instead, among those that
// somebody holds. Each is an error in Ashore's validation: with it, the object would not have been
// taken. Warnings among them are of proxies that lack what mutual TLS needs. Servers that gateways
// leave out because services map their ports are errors too. It costs as much as there are of them,
// not as the mesh is large: it may be asked often.
func (g *Generator) Refused() []feed.Problem {
	var out []feed.Problem
	for _, routes := range [][]*encodedRoutes{g.routes.rules.Marked(), g.routes.defaults.Marked()} {
		for _, r := range routes {
			out = append(out, *r.refused)
		}
	}
	for _, clusters := range [][]*madeCluster{g.clusters.outbound.Marked(), g.clusters.workload.Marked(),
		g.clusters.fixed.Marked()} {
		for _, c := range clusters {
			out = append(out, *c.problem)
		}
	}
	for _, l := range g.listeners.bypasses.current(g.listeners.resources) {
		out = append(out, l.refused...)
	}
	slices.SortFunc(out, func(a, b feed.Problem) int { return strings.Compare(a.Object+a.Text, b.Object+b.Text) })
	return slices.CompactFunc(out, func(a, b feed.Problem) bool { return a.Object == b.Object && a.Text == b.Text })
}
