package consul

import (
	"context"
	"errors"
	"net"
	"time"
)

// A Consul that hangs ends no wait: its machine answers for the connections, and those who wait for a change go on waiting for as long
// as they would for one. So one of them waits for moments alone, and is answered again and again: the one for restorations, whose answer
// is nothing. What comes from it is the beat of a place.

const (
	// beatGap is how long at most until a place says again that it answers.
	beatGap = 20 * time.Second
	// beatTimeout is how long it may take. An agent whose servers have no leader says so after 7 s (rpc_hold_timeout).
	beatTimeout = 10 * time.Second
)

// askBeat is what a place does not tell that answers nothing.
const askBeat = "whether it answers"

// silence is about a question to which there was no answer in time.
type silence struct {
	within time.Duration // besides what was to be waited for
	err    error
}

func (s *silence) Error() string { return s.err.Error() }
func (s *silence) Unwrap() error { return s.err }

// silent says that an error is that nobody answered in time.
func silent(err error) bool {
	var way net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &way) && way.Timeout()
}

// beat takes in why the restorations of a place cannot be asked for; nil: they can. Where nobody answers, nothing of the place can, until
// somebody does. Then everything is asked for again: who waits may do so by a connection that is dead.
func (k *keeper) beat(sc *scope, t *trouble) {
	mute := sc.troubles[askBeat] != nil
	switch {
	case t != nil && (t.silent || mute && !t.answered):
		k.heardOf(sc, askBeat, t)
		return
	case mute:
		k.heardOf(sc, askBeat, nil)
		sc.recheck()
	}
	k.heardOf(sc, askRestored, t)
}

// mute is why nothing new is heard of a place; nil: it is.
func (sc *scope) mute() *trouble { return sc.worst(askBeat, askNames) }

// worst is the first of the troubles with these, since the earliest of them; nil: there is none.
func (sc *scope) worst(asked ...string) (first *trouble) {
	for _, what := range asked {
		t := sc.troubles[what]
		switch {
		case t == nil:
		case first == nil:
			one := *t
			first = &one
		case t.since.Before(first.since):
			first.since = t.since
		}
	}
	return first
}
