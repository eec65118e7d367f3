package agent

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// sink is a stream that takes every response.
type sink struct {
	grpc.ServerStream
	sent int
}

func (s *sink) SendMsg(any) error { s.sent++; return nil }

// Whatever is sent to the secrets' service is answered or refused: nothing panics, and one request never makes it send
// without end.
func FuzzSecretRequest(f *testing.F) {
	for _, m := range []proto.Message{
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResourceNamesSubscribe: []string{secretCertificate, secretRoots}},
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResourceNamesUnsubscribe: []string{secretRoots}, ResponseNonce: "sds-1-1"},
		&discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{secretCertificate}, ResponseNonce: "sds-1-1"},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, raw, true)
		f.Add(raw, raw[:len(raw)/2], false)
	}
	id := newMesh(f, "cluster.local").identity(f, web(), time.Hour)
	set, err := secretSet(id)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, states bool) {
		s := &secrets{kind: &ads.Kind{TypeURL: secretType, Single: true}, cache: ads.NewCache(), log: testlog.New(t)}
		out := &sink{}
		st := &secretStream{secrets: s, grpc: out, reader: ads.NewReader(states, ads.Limits{}), sub: ads.NewSubscription(s.kind, states, s.cache, "sds-1-"), id: id, set: set}
		for _, raw := range [][]byte{first, second} {
			if err := st.take(&relay.Frame{Data: raw}); err != nil {
				return
			}
			before := out.sent
			if err := st.send(); err != nil {
				t.Fatal(err)
			}
			if n := out.sent - before; n > len(raw)+2 {
				t.Fatalf("%d responses to one request of %d bytes", n, len(raw))
			}
		}
	})
}

// What an authority answers is an identity whose parts fit, or an error; a trust bundle that is taken has roots, and
// authorities alone.
func FuzzAnswer(f *testing.F) {
	m := newMesh(f, "cluster.local")
	key := must(newKey())
	chain := m.issue(f, web(), must(newRequest(key)), time.Hour)
	f.Add(chain[0], chain[1], chain[2])
	f.Add(chain[0], "", chain[2])
	f.Add(chain[0], chain[1], chain[2]+chain[0])
	f.Add(chain[0][:200], chain[1], chain[2])
	f.Fuzz(func(t *testing.T, leaf, between, roots string) {
		if bundle, err := parseRoots([]string{roots, between}); err == nil {
			for _, c := range bundle {
				if !c.IsCA {
					t.Fatal("a root that is no authority")
				}
			}
			if len(bundle) == 0 {
				t.Fatal("an empty bundle")
			}
		}
		id, err := parseAnswer(key, []string{leaf, between, roots})
		if err != nil {
			return
		}
		if id.ID != web() || keyHash(id.Key) != keyHash(key) || id.rooted() != nil {
			t.Fatalf("an identity that does not fit: %v", id.ID)
		}
		if _, err := ca.DecodeCertificates(ca.EncodeCertificates(id.Chain...)); err != nil {
			t.Fatal(err)
		}
	})
}
