package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Who cannot read what stands there says so, also while others write all the time, who knew it
// before.
func TestDamageBesideWriters(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	put(t, a, "x", "1")
	if _, err := a.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kv(t, http.MethodDelete, keyOfChunk(a.head.Snapshot.Chunks, 0), "")
	way := newBetween(t, s.address)
	way.losing(func(path string, _ []byte) fate {
		if strings.Contains(path, "/chunk/") { // the head is another each time
			put(t, a, "x", "2")
		}
		return passes
	})
	s.address = way.URL
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := Open(ctx, s.config(t, newShelf())); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, want ErrDamaged", err)
	}
}

// Whatever happens to one of the keys, a replica that starts then knows all of it as it was, or
// refuses to know anything and says which key it is; nothing in between.
func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	for i := range 10 {
		put(t, a, fmt.Sprint("r", i), randomText(50))
		o := configtest.Object(fmt.Sprint("o", i), "one.test")
		if i%4 == 0 {
			o.Annotations = map[string]string{"text": randomText(500 << 10)}
		}
		if _, err := a.Put(t.Context(), o, "test"); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			if _, err := a.snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := fresh(t, a)
	whole, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	if err := json.Unmarshal([]byte(s.kv(t, http.MethodGet, "?keys", "")), &keys); err != nil {
		t.Fatal(err)
	}
	const tries = 60
	random := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for range tries {
		key := strings.TrimPrefix(keys[random.IntN(len(keys))], s.prefix+"/")
		value := s.kv(t, http.MethodGet, key, "")
		how := damage(t, s, random, key, value)
		other, err := Open(t.Context(), s.config(t, newShelf()))
		switch {
		case err == nil:
			got, encodeErr := other.state.Load().encode()
			if encodeErr != nil {
				t.Fatal(encodeErr)
			}
			if !bytes.Equal(got, whole) {
				t.Errorf("%s of %s: it knows something else", how, key)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, ErrDamaged) && !errors.Is(err, errFormat) || !strings.Contains(err.Error(), s.prefix+"/"):
			t.Errorf("%s of %s: got %v, want an error that names a key", how, key, err)
		default:
			refused++
		}
		s.kv(t, http.MethodPut, key, value)
	}
	if refused < tries/3 {
		t.Errorf("only %d of %d were noticed: the test shows little", refused, tries)
	}
}

// damage does something to a key, and says what.
func damage(t *testing.T, s site, random *rand.Rand, key, value string) string {
	t.Helper()
	b := []byte(value)
	switch random.IntN(4) {
	case 0:
		s.kv(t, http.MethodDelete, key, "")
		return "the loss"
	case 1:
		s.kv(t, http.MethodPut, key, value[:random.IntN(len(value))])
		return "a part"
	case 2:
		b[random.IntN(len(b))] ^= byte(1 + random.IntN(255))
	case 3:
		at := random.IntN(len(b))
		b = append(b[:at:at], append([]byte("0x\"}"), b[at:]...)...)
	}
	s.kv(t, http.MethodPut, key, string(b))
	return "a change"
}
