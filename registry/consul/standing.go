package consul

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// standing is how the source and Consul stand. The goroutine of keeper.loop owns it.
type standing struct {
	troubles map[string]trouble // by what could not be asked for
	changed  bool               // since now was made
	now      feed.Standing
	lag      time.Duration
	first    time.Time // when Consul was first seen to be well again, or at all
	told     *feed.Standing
}

type trouble struct {
	text  string
	since time.Time
}

func newStanding() standing {
	return standing{troubles: map[string]trouble{}, first: time.Now()}
}

// trouble notes what is wrong with a thing that is asked for.
func (s *standing) trouble(key, text string, at time.Time) {
	if old, ok := s.troubles[key]; ok {
		at = old.since
	}
	s.troubles[key], s.changed = trouble{text, at}, true
}

// well notes that nothing is.
func (s *standing) well(key string) {
	if _, ok := s.troubles[key]; ok {
		delete(s.troubles, key)
		s.changed, s.first = true, time.Now()
	}
}

// untold is how it stands if that is something else than what was told last; else nil. Nothing is told before it is known
// whether Consul answers.
func (s *standing) untold() *feed.Standing {
	if s.changed {
		s.now, s.changed = s.sum(), false
	}
	if s.told == nil && s.now.Error == "" || s.told != nil && s.told.Error == s.now.Error {
		return nil
	}
	now := s.now
	now.Lag = s.lag
	return &now
}

// sum is one line about all troubles: the first key of them, which are the more general ones, and how many there are.
func (s *standing) sum() feed.Standing {
	if len(s.troubles) == 0 {
		return feed.Standing{Since: s.first}
	}
	var key string
	var since time.Time
	for k, t := range s.troubles {
		if key == "" || k < key {
			key = k
		}
		if since.IsZero() || t.since.Before(since) {
			since = t.since
		}
	}
	text := s.troubles[key].text
	if n := len(s.troubles) - 1; n > 0 {
		text += " (" + whatOf(key) + fmt.Sprintf(", and %d more)", n)
	} else {
		text += " (" + whatOf(key) + ")"
	}
	return feed.Standing{Error: text, Since: since}
}

// Keys of what is asked for begin with one of these, the more general ones first.
const (
	keyPlaces   = "0 the datacenters"
	keyNames    = "1 the names of all services"
	keyChecks   = "2 the checks that are "
	keyRestore  = "3 whether its state was restored"
	keyInstance = "4 service "
	keyLost     = "5 its services"
)

// whatOf is a key for people.
func whatOf(key string) string { return key[2:] }

// tell notes what was told.
func (s *standing) tell(t feed.Standing, log hclog.Logger) {
	switch {
	case t.Error != "":
		log.Warn("out of touch with Consul; what it said last stays", "error", t.Error)
	case s.told != nil:
		log.Info("in touch with Consul again")
	}
	s.told = &t
}
