package harness

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Load is a steady stream of calls that records what fails.
type Load struct {
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	total    int            // guarded by mu
	failures map[string]int // guarded by mu
	first    []string       // guarded by mu: the first failure of each kind, with its time
	answers  map[string]int // guarded by mu, by backend
}

// StartLoad calls from several workers, each a few hundred times a second, until Stop. An answer
// fails when it is not 200.
func StartLoad(t testing.TB, c *Client, r Request) *Load {
	return Start(t, 4, 3*time.Millisecond, func() (Answer, error) { return c.Do(r) })
}

// StartCalls is StartLoad with one worker and an interval that the test sets.
func StartCalls(t testing.TB, c *Client, r Request, interval time.Duration) *Load {
	return Start(t, 1, interval, func() (Answer, error) { return c.Do(r) })
}

// Start is StartLoad with calls of the test, and a pause before each.
func Start(t testing.TB, workers int, pause time.Duration, call func() (Answer, error)) *Load {
	l := &Load{stop: make(chan struct{}), failures: map[string]int{}, answers: map[string]int{}}
	t.Cleanup(l.Stop)
	for range workers {
		l.done.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(pause):
					l.record(call())
				}
			}
		})
	}
	return l
}

func (l *Load) record(a Answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	switch {
	case err != nil:
		l.fail(err.Error())
	case a.Status != http.StatusOK:
		l.fail(fmt.Sprintf("%d %.120s", a.Status, a.Body))
	default:
		l.answers[a.Seen.Backend]++
	}
}

// fail counts a failure; the first error of each kind is logged with its time. l.mu is held.
func (l *Load) fail(text string) {
	if l.failures[text]++; l.failures[text] == 1 {
		l.first = append(l.first, time.Now().UTC().Format("15:04:05.000 ")+text)
	}
}

// Total is how many calls were made so far.
func (l *Load) Total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Failures is how many calls failed so far.
func (l *Load) Failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, k := range l.failures {
		n += k
	}
	return n
}

// Stop ends the load; it may be called again.
func (l *Load) Stop() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.done.Wait()
}

// Clean ends the load and fails the test when a single call failed, or fewer than least were made.
func (l *Load) Clean(t testing.TB, least int) {
	t.Helper()
	l.Stop()
	for _, text := range slices.Sorted(maps.Keys(l.failures)) {
		t.Errorf("%d of %d calls failed: %s", l.failures[text], l.total, text)
	}
	if l.total < least {
		t.Errorf("only %d calls were made, the test means to make %d", l.total, least)
	}
	if len(l.first) > 0 {
		t.Logf("the first of each kind:\n%s", strings.Join(l.first, "\n"))
	}
	t.Logf("%d calls, answered by %v", l.total, l.answers)
}
