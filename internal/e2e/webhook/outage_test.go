package webhook

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// load is a steady stream of reviews, each on a connection of its own.
type load struct {
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	answers int             // guarded by mu
	missing []error         // guarded by mu: no answer came
	wrong   []error         // guarded by mu
	serials map[string]bool // guarded by mu: of the certificates that were shown
}

func (w *world) load(workers int) *load {
	w.t.Helper()
	l := &load{stop: make(chan struct{}), serials: map[string]bool{}}
	for worker := range workers {
		c := w.client("")
		// some open a connection for each request, others reuse theirs
		c.Transport.(*http.Transport).DisableKeepAlives = worker%2 == 0
		l.done.Go(func() {
			for n := worker; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				l.record(w.judged(c, n))
			}
		})
	}
	w.t.Cleanup(l.end)
	return l
}

func (l *load) record(a answer, missing, wrong error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case missing != nil:
		l.missing = append(l.missing, missing)
		return
	case wrong != nil:
		l.wrong = append(l.wrong, wrong)
	}
	l.answers++
	l.serials[a.serial] = true
}

// end stops it; it may be asked for twice.
func (l *load) end() {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.done.Wait()
}

// more waits for further answers.
func (l *load) more(t *testing.T, what string, n int) {
	t.Helper()
	before := l.count()
	harness.Eventually(t, what, func() error {
		if got := l.count() - before; got < n {
			return fmt.Errorf("%d answers", got)
		}
		return nil
	})
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers
}

// A certificate is replaced under load: clients with the former root certificate succeed, and new
// connections get the new certificate.
func TestRenewedUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.load(4)
	l.more(t, "answers before", 20)
	if _, err := admin.Send(context.Background(), w.Admin, admin.CallRotate,
		admin.RotateRequest{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	l.more(t, "answers after the rotation", 20)
	l.end()
	if len(l.missing) > 0 || len(l.wrong) > 0 {
		t.Errorf("of %d reviews %d were not answered, the first: %v; wrong: %v", l.answers, len(l.missing),
			l.missing[:min(1, len(l.missing))], l.wrong)
	}
	if len(l.serials) < 2 {
		t.Errorf("one certificate was shown all the time: %v", l.serials)
	}
}

// Killed, ashored answers nothing wrong; started again, it is known by the root certificate from
// before.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.load(4)
	l.more(t, "answers before", 20)
	w.Ashored.Kill()
	w.Start()
	l.more(t, "answers after", 20)
	l.end()
	if len(l.wrong) > 0 {
		t.Errorf("of %d answers these are wrong: %v", l.answers, l.wrong)
	}
	if _, missing, wrong := w.judged(w.client(""), 1); missing != nil || wrong != nil {
		t.Error(missing, wrong)
	}
}
