package harness

import (
	"bufio"
	"fmt"
	"maps"
	"net"
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
	l := newLoad(t)
	for range 4 {
		l.run(3*time.Millisecond, func() { l.record(c.Do(r)) })
	}
	return l
}

// StartCalls is StartLoad with one worker and an interval that the test sets.
func StartCalls(t testing.TB, c *Client, r Request, interval time.Duration) *Load {
	l := newLoad(t)
	l.run(interval, func() { l.record(c.Do(r)) })
	return l
}

// StartLines sends lines to a TCPEcho at address and wants each back: on one connection that stays
// open, and every tenth time on a new one.
func StartLines(t testing.TB, address, echo string, interval time.Duration) *Load {
	kept, n := &line{address: address, echo: echo}, 0
	t.Cleanup(kept.close)
	l := newLoad(t) // ends before the connection is closed
	l.run(interval, func() {
		l.recordLine(echo, kept.exchange())
		if n++; n%10 == 0 {
			fresh := &line{address: address, echo: echo}
			l.recordLine(echo, fresh.exchange())
			fresh.close()
		}
	})
	return l
}

// line is a connection with a TCPEcho; it is opened again after it failed.
type line struct {
	address, echo string
	conn          net.Conn
	in            *bufio.Reader
	opened        int
}

// exchange sends a line and waits for it.
func (c *line) exchange() error {
	err := c.try()
	if err != nil {
		c.close()
		return fmt.Errorf("connection %d: %w", c.opened, err)
	}
	return nil
}

func (c *line) try() error {
	if c.conn == nil {
		c.opened++
		conn, err := net.DialTimeout("tcp", c.address, 20*time.Second)
		if err != nil {
			return err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
		if err := c.want(c.echo); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
	}
	if _, err := fmt.Fprintln(c.conn, "hello"); err != nil {
		return err
	}
	return c.want("hello")
}

func (c *line) want(text string) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	got, err := c.in.ReadString('\n')
	if err == nil && got != text+"\n" {
		err = fmt.Errorf("got %q, want %q", got, text)
	}
	return err
}

func (c *line) close() {
	if c.conn != nil {
		_ = c.conn.Close() // the peer may have cut it
		c.conn = nil
	}
}

func newLoad(t testing.TB) *Load {
	l := &Load{stop: make(chan struct{}), failures: map[string]int{}, answers: map[string]int{}}
	t.Cleanup(l.Stop)
	return l
}

// run calls f until Stop, with a pause before each call.
func (l *Load) run(interval time.Duration, f func()) {
	l.done.Go(func() {
		for {
			select {
			case <-l.stop:
				return
			case <-time.After(interval):
				f()
			}
		}
	})
}

func (l *Load) recordLine(echo string, err error) {
	a := Answer{Status: http.StatusOK, Seen: Seen{Backend: echo}}
	l.record(a, err)
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
