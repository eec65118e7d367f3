package xds

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// mayRead says whether a type is one of configuration objects, which are for other control planes. Errors: the stream's
// client is none.
// Source: Istio's generator "api", which serves identities of the root namespace.
func (st *stream) mayRead(typeURL string) (objects bool, err error) {
	told := st.server.cfg.Objects
	if told == nil {
		return false, nil
	}
	if _, objects = told.Set(typeURL); !objects {
		return false, nil
	}
	why := told.May(st.who.Identity)
	if why == nil {
		return true, nil
	}
	st.server.metrics.refused.WithLabelValues("configuration").Inc()
	st.server.log.Warn("stream ended: it asks for configuration", "proxy", st.proxy.ID, "peer", st.peer, "identity", st.who.Identity, "type", typeURL, "error", why)
	if st.who.Identity == (spiffe.ID{}) {
		return true, status.Error(codes.Unauthenticated, why.Error())
	}
	return true, status.Error(codes.PermissionDenied, why.Error())
}

// outdateObjects notes that the objects may be others.
func (st *stream) outdateObjects() {
	if st.server.cfg.Objects == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, t := range st.types {
		if t.objects {
			t.current = false
		}
	}
}
