package push_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
)

// keyring is a source of keys that says what a test tells it to.
type keyring struct {
	wanted [][]string
	say    chan *push.KeySets
}

func (k *keyring) Want(urls []string) { k.wanted = append(k.wanted, urls) }

func (k *keyring) Run(ctx context.Context, out chan<- *push.KeySets) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-k.say:
			select {
			case out <- s:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func requestAuthentication(name, url string) *config.Object {
	return &config.Object{
		Key: config.Key{Kind: config.RequestAuthentication, Namespace: "a", Name: name}, Hash: uint64(len(url)),
		Spec: &security.RequestAuthentication{JwtRules: []*security.JWTRule{{Issuer: "i", JwksUri: url}}},
	}
}

// Nothing is published before it is known whom to trust and which keys there are; later changes of both are published.
func TestAssemblerWaitsForTrustAndKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trust, keys := make(chan *push.Trust), &keyring{say: make(chan *push.KeySets)}
		files := newScripted[*config.Object]("files")
		var published []*push.Context
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Objects: []config.Source{files}}, Mesh: testMesh(), Trust: trust, Keys: keys,
			Publish: func(c *push.Context, _ push.Changes) { published = append(published, c) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		step := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			if len(published) != want {
				t.Fatalf("after %s: published %d contexts, want %d", what, len(published), want)
			}
		}
		files.say <- feed.Batch[*config.Object]{Full: true, Updates: []feed.Update[*config.Object]{{Group: "1", Items: []*config.Object{requestAuthentication("x", "https://one")}}}}
		step("the files", 0)
		if len(keys.wanted) != 0 {
			t.Errorf("asked for keys %v before it was known whom to trust", keys.wanted)
		}
		trust <- &push.Trust{ID: "one"}
		step("trust", 0)
		if len(keys.wanted) != 1 || !slices.Equal(keys.wanted[0], []string{"https://one"}) {
			t.Errorf("asked for the keys %v", keys.wanted)
		}
		keys.say <- &push.KeySets{ByURL: map[string]string{"https://one": "{}"}}
		step("keys", 1)
		if text, ok := published[0].Inputs().Keys.Get("https://one"); !ok || text != "{}" {
			t.Errorf("keys are %q, %v", text, ok)
		}
		trust <- &push.Trust{ID: "two"}
		step("new trust", 2)
		files.say <- feed.Batch[*config.Object]{Updates: []feed.Update[*config.Object]{{Group: "2", Items: []*config.Object{requestAuthentication("y", "https://two/keys")}}}}
		step("another issuer", 3)
		if len(keys.wanted) != 2 || !slices.Equal(keys.wanted[1], []string{"https://one", "https://two/keys"}) {
			t.Errorf("asked for the keys %v", keys.wanted)
		}
		keys.say <- &push.KeySets{}
		step("new keys", 4)
	})
}
