package main

import (
	"fmt"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
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

// Whatever was accepted is there after a restart, also where it is far larger as text than as a message.
func TestKeptObjectsThatAreLarge(t *testing.T) {
	t.Parallel()
	e := &networking.ServiceEntry{Hosts: []string{"large.example"}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}}}
	for i := range config.MaxItems {
		e.Endpoints = append(e.Endpoints, &networking.WorkloadEntry{Address: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Weight: 7, Locality: "europe/a/rack-number-7",
			Labels: map[string]string{"app": "a-name-of-some-length", "version": "v1", "rack": "7"}, Network: "n1", ServiceAccount: "large"})
	}
	o := &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: "large"}, Spec: e}
	if problems, ok := config.Accept(o); !ok {
		t.Fatalf("refused: %v", problems)
	}
	b, err := encodeObjects([]*config.Object{o})
	if err != nil || len(b) <= config.MaxFileSize {
		t.Fatalf("%d bytes, %v: want more than a file may have", len(b), err)
	}
	if back, err := decodeObjects("mcp:x")(b); err != nil || len(back) != 1 || back[0].Hash != o.Hash {
		t.Errorf("got %d objects, %v; want the object as it was", len(back), err)
	}
}
