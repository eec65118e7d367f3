package main

import (
	"testing"

	security "istio.io/api/security/v1beta1"
	apitype "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
)

// What a source of messages has sent is kept over a restart, also what would be refused in text, as empty.
func TestKeptObjectsWithEmptyFields(t *testing.T) {
	t.Parallel()
	o := &config.Object{
		Key:  config.Key{Kind: config.PeerAuthentication, Namespace: "shop", Name: "p"},
		Spec: &security.PeerAuthentication{Selector: &apitype.WorkloadSelector{}, Mtls: &security.PeerAuthentication_MutualTLS{Mode: security.PeerAuthentication_MutualTLS_STRICT}},
	}
	if problems, ok := config.Accept(o); !ok {
		t.Fatalf("refused: %v", problems)
	}
	b, err := encodeObjects([]*config.Object{o})
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeObjects("mcp:x")(b)
	if err != nil || len(back) != 1 || back[0].Hash != o.Hash {
		t.Errorf("got %v, %v; want the object as it was", back, err)
	}
}
