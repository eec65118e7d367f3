package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// refresh reads the head and what is new since the state. Its caller has the turn. It notes how
// Consul stands.
func (s *Store) refresh(ctx context.Context) error {
	h, err := s.client.head(ctx, 0, 0)
	if err != nil {
		err = s.client.explain(err)
	} else {
		err = s.catchUp(ctx, h)
	}
	s.note(ctx, err)
	return err
}

// note notes what came of an attempt to read. That ctx ended says nothing of Consul.
func (s *Store) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		s.standing.well(s.cfg.Log)
	case !errors.Is(ctx.Err(), context.Canceled):
		s.standing.ill(err, s.cfg.Log)
	}
}

// catchTries is how often what is missing is looked for below another head: snapshots take the
// place of entries seldom.
const catchTries = 10

// catchUp brings the state to a head. Its caller has the turn, and read the head after it took it,
// unless the head is newer than the state.
func (s *Store) catchUp(ctx context.Context, r headRead) error {
	for try := 1; ; try++ {
		err := s.bring(ctx, r)
		if err == nil {
			err = s.checkTip(ctx)
		}
		if !errors.Is(err, errMissed) && !errors.Is(err, errUnchained) && !errors.Is(err, errTipless) {
			return err
		}
		// What is missing may have become part of a snapshot just now.
		again, askErr := s.client.head(ctx, 0, 0)
		if askErr != nil {
			return s.client.explain(askErr)
		}
		switch same := bytes.Equal(again.raw, r.raw); {
		case errors.Is(err, errTipless) && (same || try == catchTries):
			return err
		case same || try == catchTries:
			return fmt.Errorf("%w: %w: bring back a snapshot of Consul's", ErrDamaged, err)
		}
		r = again
	}
}

// bring brings the state to a head. Errors: errMissed, errUnchained, errTipless, and what makes no
// sense.
func (s *Store) bring(ctx context.Context, r headRead) error {
	known := s.state.Load()
	if r.raw == nil {
		return s.headless(known)
	}
	h, err := parseHead(r.raw)
	if err != nil {
		return s.damaged(keyHead, err)
	}
	if known.Log != "" && h.Log != known.Log {
		if err := s.replaced(known, h); err != nil {
			return err
		}
		return s.startOver(ctx, known, h, r.modified)
	}
	switch {
	case h.position == known.position && known.partial:
		return s.startOver(ctx, known, h, r.modified)
	case h.position == known.position:
		s.knowHead(h, r.modified)
		return nil
	case h.Sequence > known.Sequence && (known.partial || known.Sequence < sequenceOf(h.Former)):
		if err := s.compare(ctx, known, h); err != nil {
			return err
		}
		return s.startOver(ctx, known, h, r.modified)
	case h.Sequence > known.Sequence:
		well := s.headAt > 0 && s.tipAt == s.headAt
		err := s.follow(ctx, known, h, r.modified)
		switch {
		case err == nil && well:
			// replicas write the two together: looking each time would cost a question for each
			// entry
			s.tipAt = s.headAt
			return nil
		case errors.Is(err, errMissed) && sequenceOf(h.Snapshot) > known.Sequence:
			return s.startOver(ctx, known, h, r.modified)
		case !errors.Is(err, errUnchained):
			return err
		}
	}
	// Consul's state as a whole is older, or an older value was put into the key alone: then the
	// newer entries stand there still.
	if err := s.findTip(ctx, h); err != nil {
		return err
	}
	s.restored(known, h)
	return s.startOver(ctx, known, h, r.modified)
}

// errTipless says that the tip of the head's entry is not there: nothing can be written.
var errTipless = errors.New("it is missing, and the head is there")

// checkTip looks for the tip of the head that the state is of, unless it was seen for that already.
// Errors: errTipless.
func (s *Store) checkTip(ctx context.Context) error {
	if s.headAt == s.tipAt {
		return nil
	}
	if err := s.findTip(ctx, s.head); err != nil {
		return err
	}
	s.tipAt = s.headAt
	return nil
}

// findTip looks for the tip of a head. It may be missing because the head has moved. Errors:
// errTipless.
func (s *Store) findTip(ctx context.Context, h head) error {
	name := keyOfTip(h.Entry)
	found, err := s.client.stands(ctx, name)
	switch {
	case err != nil:
		return s.client.explain(err)
	case !found:
		return s.damaged(name, errTipless)
	}
	return nil
}

// replaced is for a Consul that holds another log than the known one: somebody began a new one
// where the old one was lost. Who runs does not believe it, as all would be gone at once, and who
// starts does: the start is the operator's word.
func (s *Store) replaced(known *state, h head) error {
	if s.begun {
		return fmt.Errorf("%w: Consul holds another store below %s, begun on %s, than the one that this replica knows: was its state lost? Bring back a snapshot of Consul, or start ashored again to go by what is there now",
			ErrDamaged, s.cfg.Options.Prefix, h.Begun.UTC().Format(time.RFC3339))
	}
	s.cfg.Log.Error("Consul holds another store than the one that this replica knew before its start: it goes by that one", "store", s.Name(), "begun", h.Begun, "known", known.Log, "found", h.Log)
	return nil
}

// headless is for a Consul without a head: nothing was written yet, or it was lost.
func (s *Store) headless(known *state) error {
	if known.Log != "" {
		return fmt.Errorf("%w: the key %s is gone from Consul: bring back a snapshot of Consul's; or, to begin with an empty store, name another setting store.prefix", ErrDamaged, s.client.key(keyHead))
	}
	if known.partial {
		s.publish(&state{})
	}
	s.head, s.headAt, s.tipAt = head{}, 0, 0
	return nil
}

// compare tells whether Consul's state was restored from a snapshot before what this replica knew,
// and others have written since: the entry that it knew last is another then, if it still stands.
func (s *Store) compare(ctx context.Context, known *state, h head) error {
	if known.Sequence == 0 {
		return nil
	}
	name := keyOfEntry(known.Sequence)
	values, err := s.client.read(ctx, []string{name})
	if err != nil {
		return s.client.explain(err)
	}
	// what cannot be read is told when it is needed
	if a, _, err := parseEntry(values[name]); err == nil && a.Entry != known.Entry {
		s.restored(known, h)
	}
	return nil
}

// restored tells that Consul's state was replaced by an older one.
func (s *Store) restored(known *state, h head) {
	s.cfg.Log.Error("Consul's state is not the one that this replica knew, as after a restoration from a snapshot: it goes by what Consul holds now, and writes since then are lost",
		"store", s.Name(), "known", known.Sequence, "found", h.Sequence, "known_entry", known.Entry, "found_entry", h.Entry)
}

// damaged is the error for what stands at a key and cannot be used.
func (s *Store) damaged(name string, err error) error {
	if errors.Is(err, errFormat) {
		return fmt.Errorf("the key %s of Consul cannot be used: %w", s.client.key(name), err)
	}
	return fmt.Errorf("%w: the key %s of Consul cannot be used (%w): did somebody else write there? What was known stays; bring back a snapshot of Consul's", ErrDamaged, s.client.key(name), err)
}
