package ads_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// What was acknowledged and what is the target are named alike, so that people can compare them.
func TestStatusNames(t *testing.T) {
	t.Parallel()
	s := &script{peer: newPeer(t, endpoints(), false)}
	if st := s.status(); st.Target != "" || st.Acknowledged != "" {
		t.Errorf("before the first request: %+v", st)
	}
	s.run("to a=1\nsub a b\n> a=1 b=")
	if st := s.status(); st.Target == "" || st.Acknowledged != "" {
		t.Errorf("not acknowledged: %+v; want a target alone", st)
	}
	s.run("ack")
	first := s.status()
	if first.Target != first.Acknowledged || !first.Latest {
		t.Errorf("acknowledged: %+v; want the target", first)
	}
	s.run("to a=2")
	if st := s.status(); st.Acknowledged != first.Acknowledged || st.Target == first.Target || st.Latest {
		t.Errorf("changed: %+v; want another target", st)
	}
}

// status is that of the subscription with what the client should have now.
func (s *script) status() ads.Status {
	s.sub.To = s.to
	return s.sub.Status()
}
