package consul

import (
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// standing is how the source as a whole stands with Consul. The goroutine of keeper.loop owns it.
type standing struct {
	now  feed.Standing
	told *feed.Standing
	lag  time.Duration // of the changes that are sent next, or were last
}

func newStanding() standing { return standing{now: feed.Standing{Since: time.Now()}} }

// set takes in what is wrong with all of it; nil: nothing. It says that it was over with something.
func (s *standing) set(t *trouble, now time.Time) (over bool) {
	if t == nil {
		if over = s.now.Error != ""; over {
			s.now = feed.Standing{Since: now}
		}
		return over
	}
	if s.now.Error == "" || s.now.Error != t.text {
		s.now = feed.Standing{Error: t.text, Since: t.since}
	}
	return false
}

// lagStep is by how much the lag has to be another than the one that was told for it to be told.
const lagStep = time.Second

// untold is how it stands if that is something else than what was told last; else nil. Nothing is told before it is known
// whether Consul answers. The lag is that of changes, and is told with them.
func (s *standing) untold(changes bool) *feed.Standing {
	var was feed.Standing
	if s.told != nil {
		was = *s.told
	}
	if s.now.Error == was.Error && (!changes || (s.lag-was.Lag).Abs() < lagStep) {
		return nil
	}
	out := s.now
	out.Lag = s.lag
	return &out
}

// logGap is the least time between two lines of the log about one thing, that it is over aside.
const logGap = time.Minute

// teller says what is wrong in the log: at once, and what is another thing then later. The goroutine of keeper.loop owns it.
type teller struct {
	said string
	at   time.Time // when something was last said to be wrong
}

// due says whether a text is to be written, empty: that nothing is wrong any more; and if it is not yet, when.
func (l *teller) due(text string, now time.Time) (say bool, later time.Time) {
	if text == l.said {
		return false, time.Time{}
	}
	if end := l.at.Add(logGap); text != "" && !l.at.IsZero() && now.Before(end) {
		return false, end
	}
	if l.said = text; text != "" {
		l.at = now
	}
	return true, time.Time{}
}
