package consul

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
)

// standing is how the store and Consul stand. The zero value has never been in touch. Safe for
// concurrent use.
type standing struct {
	mu sync.Mutex
	// the following are guarded by mu
	now    config.Outage
	cause  error              // that now tells
	closed config.Outage      // why Consul takes nothing although it can be read, and since when
	met    bool               // Consul answered once
	broke  time.Time          // when a wait for a change failed, and nothing went well since; zero: none did
	kept   time.Time          // of when the copy is that stood in at the start; zero: none did
	tried  time.Time          // when an attempt failed last
	stop   context.CancelFunc // ends the wait for a change; nil: there is none
	listen map[chan struct{}]bool
}

// well notes that what Consul holds is known.
func (s *standing) well(log hclog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broke = time.Time{}
	if s.met && s.now.Error == "" {
		return
	}
	if s.now.Error != "" {
		log.Info("in touch with the store in Consul again")
	}
	s.met, s.now, s.cause = true, config.Outage{Since: time.Now()}, nil
	s.tell()
}

// broken notes that a wait for a change failed at at: should Consul be away, that is since when.
func (s *standing) broken(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broke = cmp.Or(s.broke, at)
}

// ill notes that it is not, and has who waits for a change look at once.
func (s *standing) ill(err error, log hclog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
	if s.now.Error == err.Error() {
		return
	}
	if s.now.Error == "" {
		s.now.Since = cmp.Or(s.broke, time.Now())
		if !s.met && !s.kept.IsZero() {
			s.now.Since = s.kept
		}
		log.Error("out of touch with the store in Consul: what it held last stays, and nothing can be written",
			"error", err)
	} else {
		log.Warn("still out of touch with the store in Consul", "error", err)
	}
	s.now.Error, s.cause = err.Error(), err
	if s.stop != nil {
		s.stop()
	}
	s.tell()
}

// refused notes that Consul did not take a write and said so. What it holds may be read all the
// same.
func (s *standing) refused(err error, log hclog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Error == "" {
		s.closed.Since = time.Now()
		log.Error("the store in Consul takes nothing: nothing can be written until it does", "error", err)
	} else if s.closed.Error != err.Error() { // it names the keys, which differ
		log.Debug("the store in Consul takes nothing still", "error", err)
	}
	s.closed.Error = err.Error()
	s.tell()
}

// wrote notes that Consul took a write.
func (s *standing) wrote(log hclog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Error != "" {
		log.Info("the store in Consul takes what is written again",
			"after", time.Since(s.closed.Since).Round(time.Second))
		s.closed = config.Outage{}
		s.tell()
	}
}

// tell wakes who listens. Its caller holds mu.
func (s *standing) tell() {
	for c := range s.listen {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// get is how it stands.
func (s *standing) get() config.Outage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// away says that the last attempt to read Consul failed.
func (s *standing) away() bool {
	return s.get().Error != ""
}

// why is the error of the last attempt to read Consul; nil: it went well, or there was none.
func (s *standing) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// lately says that the last attempt to read Consul failed, less than a time ago.
func (s *standing) lately(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Error != "" && time.Since(s.tried) < d
}

// since is when what is known was right for sure; zero: it is.
func (s *standing) since() time.Time {
	now := s.get()
	if now.Error == "" {
		return time.Time{}
	}
	return now.Since
}

// stands notes of when the copy is that stands in.
func (s *standing) stands(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = at
}

// hold is the context of a wait for a change, which trouble ends.
func (s *standing) hold(ctx context.Context) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, s.stop = context.WithCancel(ctx)
	if s.now.Error != "" {
		s.stop()
	}
	return ctx, s.stop
}

// subscribe has c, of capacity 1, told of changes until the returned function is called.
func (s *standing) subscribe(c chan struct{}) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen == nil {
		s.listen = map[chan struct{}]bool{}
	}
	s.listen[c] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listen, c)
	}
}

// Refused is why Consul takes nothing of what is written although it answers, as with a token that
// may only read, and since when; the zero value: it does, as far as is known.
func (s *Store) Refused() config.Outage {
	s.standing.mu.Lock()
	defer s.standing.mu.Unlock()
	return s.standing.closed
}

// Standing is how the store and Consul stand.
func (s *Store) Standing() config.Outage {
	return s.standing.get()
}
