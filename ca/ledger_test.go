package ca

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ashore-mesh/ashore/internal/record"
)

// A rotation waits for all that may still be used, and for nobody who is out.
func TestDependents(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	a := l.join("shop/web", "a")
	l.join("shop/web", "b")
	l.join("shop/api", "d")
	l.revoke("shop/b")
	l.revoke("spiffe://cluster.local/ns/shop/sa/default")
	f, err := l.ledger.Dependents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Dependent{{"shop/a", RootID(l.root.Cert), a.Leaf.NotAfter.Add(48 * time.Hour)}}
	if d := cmp.Diff(want, f, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	l.pass(24*time.Hour + 47*time.Hour)
	if f, err := l.ledger.Dependents(t.Context()); err != nil || len(f) != 1 {
		t.Errorf("in the grace: %+v, error %v", f, err)
	}
	l.pass(2 * time.Hour)
	if f, err := l.ledger.Dependents(t.Context()); err != nil || len(f) != 0 {
		t.Errorf("after it: %+v, error %v", f, err)
	}
}

// A workload is forgotten when it can renew no more.
func TestWorkloadsAreForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	if _, _, err := l.ask(client{cert: c}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		passes    time.Duration
		workloads int
	}{{72*time.Hour - time.Second, 1}, {time.Second, 0}} {
		l.pass(step.passes)
		if err := l.ledger.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, err := l.ledger.Workloads(t.Context())
		if err != nil || len(all) != step.workloads {
			t.Errorf("%d workloads are known, want %d; error %v", len(all), step.workloads, err)
		}
	}
}

// A workload that renews for weeks has a small record.
func TestRecordsStaySmall(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	for range 30 {
		l.pass(12 * time.Hour)
		next, _, err := l.ask(client{cert: c})
		if err != nil {
			t.Fatal(err)
		}
		c = next
	}
	w, err := l.ledger.Workload(t.Context(), "shop/a")
	if err != nil || len(w.Leaves) > 4 {
		t.Errorf("%d certificates are known, error %v", len(w.Leaves), err)
	}
}

// Many workloads renew at once without one waiting for another's record.
func TestManyRenewals(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	const n = maxCalls
	all := make(chan struct{})
	var mu sync.Mutex
	waiting := 0
	var wg sync.WaitGroup
	certs := make([]client, n)
	for i := range certs {
		certs[i].cert = l.join("shop/web", fmt.Sprint("w", i))
	}
	l.store.fail(func(w []record.Write) error { // no commit ends before all have begun
		mu.Lock()
		if waiting++; waiting == n {
			close(all)
		}
		mu.Unlock()
		<-all
		return nil
	})
	for _, c := range certs {
		wg.Go(func() {
			if _, _, err := l.ask(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// One record that cannot be read hides no other workload, lets nobody renew, and stops a rotation.
func TestBadWorkloadRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	l.join("shop/web", "b")
	bad := record.Write{Key: record.Key{Table: "workload", Name: "shop/a"}, Value: []byte(`{`),
		Version: record.Any}
	if err := l.store.Commit(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	if all, err := l.ledger.Workloads(t.Context()); err == nil || len(all) != 1 {
		t.Errorf("got %d workloads, error %v", len(all), err)
	}
	if _, err := l.ledger.Dependents(t.Context()); err == nil {
		t.Error("a rotation would not wait for a workload that cannot be read")
	}
	if _, _, err := l.ask(client{cert: c}); err == nil {
		t.Error("it renews")
	}
}

// What has ended is forgotten while the ledger runs.
func TestRunSweeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLedger(t.Context(), LedgerConfig{Records: record.NewMemory(), TrustDomain: "cluster.local",
			Groups: labGroups})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.CreateToken(t.Context(), TokenRequest{Group: "shop/web"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		for _, step := range []struct {
			passes time.Duration
			want   int
		}{{24 * time.Hour, 1}, {time.Hour + sweepEvery, 0}} {
			time.Sleep(step.passes)
			synctest.Wait()
			if tokens, err := l.Tokens(t.Context()); err != nil || len(tokens) != step.want {
				t.Errorf("%d tokens are known, want %d; error %v", len(tokens), step.want, err)
			}
		}
		cancel()
		wg.Wait()
	})
}
