package consul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// outcome is what a writer was told of a write.
type outcome struct {
	name string
	err  error
}

// Requests and answers of all kinds are lost at random, of three replicas that write small and
// large, with snapshots under way. In the end what was acknowledged is there, what was said not to
// be written is not, nothing was done twice, and all replicas know the same.
func TestUnreliable(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	s.compact = 30
	var ways []*between
	var stores []*Store
	for range 3 {
		way := newBetween(t, s.address)
		one := s
		one.address = way.URL
		ways, stores = append(ways, way), append(stores, one.open(t))
	}
	for _, w := range ways {
		w.losing(func(string, []byte) fate {
			switch rand.IntN(20) {
			case 0:
				return unanswered
			case 1:
				return unheard
			}
			return passes
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var mu sync.Mutex
	var told []outcome
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("w%d-%d", i, n)
				err := writeSome(context.WithoutCancel(ctx), stores[i%3], name, i == 0)
				if errors.Is(err, ErrAway) {
					time.Sleep(50 * time.Millisecond)
				}
				mu.Lock()
				told = append(told, outcome{name, err})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, w := range ways {
		w.losing(nil)
	}
	for _, r := range stores {
		eventually(t, "all are in touch", func() bool { return r.Standing().Error == "" })
	}
	late := s.open(t)
	for _, r := range append(stores, late) {
		equalStates(t, stores[0], r)
	}
	judge(t, stores[0], told)
}

// writeSome writes a record that must not be there, or objects of that name.
func writeSome(ctx context.Context, s *Store, name string, large bool) error {
	if !large {
		return s.Records().Commit(ctx, record.Write{Key: record.Key{Table: "t", Name: name}, Value: []byte(name)})
	}
	var changes []config.Change
	for i := range 400 {
		o := configtest.Object(fmt.Sprintf("%s-%d", name, i), "large.test")
		o.Annotations = map[string]string{"text": randomText(1000)}
		changes = append(changes, config.Change{Key: o.Key, Object: o, Revision: config.Absent})
	}
	_, err := s.Apply(ctx, changes, "test")
	return err
}

// judge compares what is there with what writers were told.
func judge(t *testing.T, store *Store, told []outcome) {
	t.Helper()
	objects, records := store.config.state.Load(), store.identity.state.Load()
	counts := map[string]int{}
	for _, o := range told {
		there := records.records.At(record.Key{Table: "t", Name: o.name}) != nil
		if objects.records.At(objectKey(configtest.Key(o.name+"-0"))) != nil {
			there = true
			if objects.records.At(objectKey(configtest.Key(o.name+"-399"))) == nil {
				t.Errorf("%s is there in part", o.name)
			}
		}
		switch {
		case o.err == nil:
			counts["acknowledged"]++
			if !there {
				t.Errorf("%s was acknowledged and is not there", o.name)
			}
		case errors.Is(o.err, ErrUnknown):
			counts["unknown"]++
		case errors.Is(o.err, ErrAway):
			counts["not written"]++
			if there {
				t.Errorf("%s was said not to be written and is there: %v", o.name, o.err)
			}
		default:
			t.Errorf("%s: %v", o.name, o.err)
		}
	}
	if counts["acknowledged"] < 20 {
		t.Errorf("too little was written to show anything: %v", counts)
	}
	t.Logf("%v, %d entries", counts, records.Revision)
}
