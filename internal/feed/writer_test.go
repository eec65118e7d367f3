package feed

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryStore is a Store in memory.
type memoryStore struct {
	mu      sync.Mutex
	content map[string]map[string][]byte
	err     error // of SaveGroups
}

func (s *memoryStore) LoadGroups(_ context.Context, set string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.content[set]), nil
}

func (s *memoryStore) SaveGroups(_ context.Context, set string, content map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.content == nil {
		s.content = map[string]map[string][]byte{}
	}
	if s.content[set] == nil {
		s.content[set] = map[string][]byte{}
	}
	for name, b := range content {
		if s.content[set][name] = b; b == nil {
			delete(s.content[set], name)
		}
	}
	return nil
}

func (s *memoryStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (i *testItem) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if strings.HasPrefix(s, "bad") {
		return errors.New("bad item")
	}
	*i = testItem(s)
	return nil
}

func load(t *testing.T, store Store) []SavedGroup[testItem] {
	t.Helper()
	groups, err := Load[testItem](t.Context(), store, "test")
	if err != nil {
		t.Error(err)
	}
	slices.SortFunc(groups, func(a, b SavedGroup[testItem]) int { return strings.Compare(a.Group, b.Group) })
	return groups
}

// What a Writer saved, Load reads: items, what is retained, and what is wrong with a group.
func TestWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		w := NewWriter[testItem](store, "test", hclog.NewNullLogger())
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		a := SavedGroup[testItem]{
			Source: "s1", Group: "a", GroupState: GroupState{Invalid: []string{"Thing x"}, Unreadable: epoch,
				HasError: true},
			Items: []SavedItem[testItem]{{Item: "x=1", Stale: true},
				{Item: "y=1", Removal: Removal{At: epoch, Settled: true, Mass: true}}},
		}
		b := SavedGroup[testItem]{Source: "s1", Group: "b", Items: []SavedItem[testItem]{{Item: "z=1"}}}
		w.Put([]SavedGroup[testItem]{a, b})
		time.Sleep(time.Second)
		if diff := cmp.Diff([]SavedGroup[testItem]{a, b}, load(t, store), cmp.AllowUnexported(Removal{})); diff != "" {
			t.Errorf("loaded (-want +got):\n%s", diff)
		}
		w.Put([]SavedGroup[testItem]{{Source: "s1", Group: "a", Removed: true}})
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]SavedGroup[testItem]{b}, load(t, store), cmp.AllowUnexported(Removal{})); diff != "" {
			t.Errorf("loaded after the end (-want +got):\n%s", diff)
		}
	})
}

// While the disk fails, a problem says so, and only the latest content of each group is in memory.
func TestWriterFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{err: errors.New("no space left on device")}
		w := NewWriter[testItem](store, "test", hclog.NewNullLogger())
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		start := time.Now()
		for _, item := range []testItem{"x=1", "x=2"} {
			w.Put([]SavedGroup[testItem]{{Source: "s1", Group: "a", Items: []SavedItem[testItem]{{Item: item}}}})
			time.Sleep(time.Minute)
		}
		p := w.Problems()
		if len(p) != 1 || !strings.Contains(p[0].Text, "no space left") || p[0].Since.Sub(start) > time.Second {
			t.Errorf("problems are %+v, want one since %v", p, start)
		}
		store.fail(nil)
		time.Sleep(time.Minute)
		if p := w.Problems(); len(p) > 0 {
			t.Errorf("problems are %+v after the disk works again", p)
		}
		if groups := load(t, store); len(groups) != 1 || groups[0].Items[0].Item != "x=2" {
			t.Errorf("loaded %+v, want x=2", groups)
		}
		end()
		<-done
	})
}

// What cannot be read is reported and left out; the rest is used.
func TestLoadDamaged(t *testing.T) {
	t.Parallel()
	store := &memoryStore{content: map[string]map[string][]byte{"test": {
		"1": []byte("nonsense"),
		"2": []byte(`{"Source":"s1","Group":"a","Items":[{"Item":"x=1"},{"Item":"bad=1"}]}`),
		"3": []byte(`{"Source":"s1","Group":"b","Items":[{"Item":"y=1"}]}`),
	}}}
	groups, err := Load[testItem](t.Context(), store, "test")
	if err == nil || !strings.Contains(err.Error(), `"1"`) || !strings.Contains(err.Error(), `"2": bad item`) {
		t.Errorf("the error is %v, want one that names both", err)
	}
	if len(groups) != 1 || groups[0].Group != "b" || groups[0].Items[0].Item != "y=1" {
		t.Errorf("loaded %+v, want group b", groups)
	}
}
