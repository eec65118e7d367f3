package jwks

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// issuers answer as a test says.
type issuers struct {
	mu    sync.Mutex
	sets  map[string]*Set
	slow  map[string]time.Duration
	asked map[string]int
	told  []map[string]string
}

func (i *issuers) fetch(ctx context.Context, url string) (*Set, error) {
	i.mu.Lock()
	i.asked[url]++
	wait := i.slow[url]
	i.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.sets[url]; s != nil {
		return s, nil
	}
	return nil, errors.New("no answer")
}

// pass lets time pass, in which the issuers answer; what they saw may be read and changed until the
// next one.
func (i *issuers) pass(d time.Duration) {
	i.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	i.mu.Lock()
}

func newIssuers() *issuers {
	i := &issuers{sets: map[string]*Set{}, slow: map[string]time.Duration{}, asked: map[string]int{}}
	i.mu.Lock()
	return i
}

// run starts a refresher.
func (i *issuers) run(t *testing.T, file string) *Refresher {
	k := NewRefresher(RefresherConfig{Fetch: i.fetch, File: file, Log: testlog.New(t)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- k.Run(ctx, func(_ context.Context, texts map[string]string) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.told = append(i.told, texts)
		})
	}()
	t.Cleanup(func() {
		i.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return k
}

func aSet(t *testing.T, id string) *Set {
	t.Helper()
	s, err := Parse(document(t, jose.JSONWebKey{Key: &ecKey(t).PublicKey, KeyID: id}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Keys are reported when all issuers have answered, and a failed request is retried.
func TestRefresherAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, a, slow := newIssuers(), aSet(t, "a"), aSet(t, "slow")
		i.sets["a"], i.sets["slow"], i.slow["slow"], i.slow["a"] = a, slow, 5*time.Second, time.Second
		k := i.run(t, "")
		k.Want(map[string]time.Duration{"a": 0, "missing": 0, "slow": 0})
		i.pass(4 * time.Second)
		if len(i.told) != 0 {
			t.Fatalf("told %v before everyone had time to answer", i.told)
		}
		i.pass(2 * time.Second)
		if len(i.told) != 1 || !maps.Equal(i.told[0], map[string]string{"a": a.Text(), "slow": slow.Text()}) {
			t.Fatalf("told %v", i.told)
		}
		i.pass(2 * time.Minute)
		if f := k.Failures(); len(f) != 1 || f[0].URL != "missing" || f[0].Kept {
			t.Errorf("failures are %v", f)
		}
		if n := i.asked["missing"]; n < 4 || n > 20 {
			t.Errorf("asked %d times for what nobody has", n)
		}
		i.sets["missing"] = aSet(t, "m")
		i.pass(30 * time.Minute)
		if len(i.told) != 2 || len(k.Failures()) != 0 {
			t.Errorf("told %v, failures %v", i.told, k.Failures())
		}
		k.Want(nil)
		i.pass(time.Second)
		if last := i.told[len(i.told)-1]; len(last) != 0 {
			t.Errorf("keys that nobody wants: %v", last)
		}
	})
}

// A fetch ends after the time that is wanted for its document.
func TestRefresherTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIssuers()
		i.sets["a"], i.slow["a"] = aSet(t, "a"), 7*time.Second
		k := i.run(t, "")
		k.Want(map[string]time.Duration{"a": 0})
		i.pass(6 * time.Second)
		if f := k.Failures(); len(f) != 1 || !errors.Is(f[0].Err, context.DeadlineExceeded) {
			t.Fatalf("failures are %v, want the default timeout", f)
		}
		k.Want(map[string]time.Duration{"a": 8 * time.Second})
		i.pass(20 * time.Second)
		if f := k.Failures(); len(f) != 0 || k.Set("a") == nil {
			t.Errorf("failures are %v, want none", f)
		}
	})
}

// Changed keys are reported, and keys that can no longer be fetched are kept.
func TestRefresherRefreshes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIssuers()
		i.sets["a"] = aSet(t, "1")
		k := i.run(t, "")
		k.Want(map[string]time.Duration{"a": 0})
		i.pass(time.Second)
		next := aSet(t, "2")
		i.sets["a"] = next
		i.pass(20 * time.Minute)
		if len(i.told) != 2 || i.told[1]["a"] != next.Text() {
			t.Fatalf("told %v", i.told)
		}
		delete(i.sets, "a")
		i.pass(3 * time.Hour)
		if f := k.Failures(); len(f) != 1 || !f[0].Kept || len(i.told) != 2 {
			t.Errorf("failures %v, told %d times", f, len(i.told))
		}
		k.Want(map[string]time.Duration{"a": 0})
		i.pass(time.Millisecond)
		if len(i.told) != 3 || i.told[2]["a"] != next.Text() {
			t.Errorf("a Want of what is there was answered by %v", i.told)
		}
	})
}

// After a restart the keys are there at once, also when no issuer answers; a file that is none is
// not.
func TestRefresherRestarts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	a := aSet(t, "a")
	synctest.Test(t, func(t *testing.T) {
		i := newIssuers()
		i.sets["a"] = a
		i.run(t, file).Want(map[string]time.Duration{"a": 0})
		i.pass(time.Second)
	})
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	synctest.Test(t, func(t *testing.T) {
		i := newIssuers()
		i.slow["a"] = time.Hour
		i.run(t, file).Want(map[string]time.Duration{"a": 0})
		i.pass(time.Millisecond)
		if n := len(i.told); n == 0 || i.told[n-1]["a"] != a.Text() { // twice, if a round began before Want ended
			t.Errorf("told %v", i.told)
		}
	})
	if err := os.WriteFile(file, []byte(`{"a":"{\"keys\":[]}"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		i := newIssuers()
		i.run(t, file).Want(map[string]time.Duration{"a": 0})
		i.pass(time.Millisecond)
		if len(i.told) != 1 || len(i.told[0]) != 0 {
			t.Errorf("told %v", i.told)
		}
	})
}
