package access

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/push"
)

// Filters yields the filters that allow or deny what others send to a proxy of a
// scope, by name and in the order in which they decide: those of requests, or those of connections.
// They are what inbound and gateway chains have under these names. One without rules lets
// everything pass.
func Filters(sc *push.Scope, connections bool) iter.Seq2[string, proto.Message] {
	return func(yield func(string, proto.Message) bool) {
		in := new(Generator).inputs(sc)
		s := rbacScope{domains: in.domains.Items(), tcp: connections}
		names := ConnectionFilters()
		if !connections {
			names = RequestFilters()
			if !yield(badHostName, badHostRules()) {
				return
			}
		}
		for _, name := range names {
			if m, _ := in.filter(s, name); !yield(name, m) {
				return
			}
		}
	}
}
