package xds

import (
	"slices"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// typeState is one type of a stream.
type typeState struct {
	*ads.Turn
	current  bool // its To is what the latest context says
	objects  bool // it is of configuration, and not of what the proxy sees
	refusing bool // the client refuses some of it, and the metrics count that
}

// find returns the state of a type, nil when the client never asked for it.
func (st *stream) find(typeURL string) *typeState {
	for _, t := range st.types {
		if t.Kind().TypeURL == typeURL {
			return t
		}
	}
	return nil
}

// add takes in a type.
func (st *stream) add(sub *ads.Subscription, rank int) *typeState {
	turn, at := st.order.Add(sub, rank)
	t := &typeState{Turn: turn}
	st.types = slices.Insert(st.types, at, t)
	return t
}
