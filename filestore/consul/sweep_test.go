package consul

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Who sweeps with a clock that is hours ahead, or was stopped in the middle for as long, takes away
// nothing that others have come to refer to.
func TestSweep(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	for name, at := range map[string]func(path string, body []byte) bool{
		"written while it lists": func(path string, _ []byte) bool { return strings.HasSuffix(path, "/chunk/") },
		"written before it deletes": func(path string, body []byte) bool {
			return path == "/v1/txn" && bytes.Contains(body, []byte("/mark")) &&
				bytes.Contains(body, []byte(`"delete"`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(agent)
			mine, others := newBetween(t, s.address), newBetween(t, s.address)
			s.address = mine.URL
			a := s.open(t)
			s.address = others.URL
			b := s.open(t)
			put(t, a, "x", "1")
			for range 2 {
				if _, err := a.snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
				put(t, a, "x", "2")
			}
			// b has written its chunks, and is about to refer to them
			written, onward, done := make(chan bool), make(chan bool), make(chan error, 1)
			var wait, release sync.Once
			others.losing(func(path string, body []byte) fate {
				if path == "/v1/txn" && bytes.Contains(body, []byte(`"cas"`)) {
					wait.Do(func() { close(written); <-onward })
				}
				return passes
			})
			go func() {
				o := configtest.Object("o", "one.test")
				o.Annotations = map[string]string{"text": randomText(600 << 10)}
				_, err := b.Put(t.Context(), o, "test")
				done <- err
			}()
			<-written
			mine.losing(func(path string, body []byte) fate {
				if at(path, body) {
					release.Do(func() {
						close(onward)
						if err := <-done; err != nil {
							t.Error(err)
						}
					})
				}
				return passes
			})
			if _, err := a.sweep(t.Context(), a.state.Load().generation, nil, 0); err != nil {
				t.Fatal(err)
			}
			late := s.open(t)
			if _, err := late.Get(t.Context(), configtest.Key("o")); err != nil {
				t.Errorf("who starts later: %v", err)
			}
			equalStates(t, fresh(t, b), fresh(t, late))
			if got := s.kv(t, "GET", "chunk?keys", ""); strings.Count(got, "/mark") != 3 {
				t.Errorf("want the chunks of two snapshots and an entry, got %s", got)
			}
		})
	}
}
