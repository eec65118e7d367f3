package consul

import (
	"context"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// History implements config.Store.
func (s *Store) History(ctx context.Context, q config.Query) (config.Past, error) {
	var after uint64
	if q.After != "" {
		var err error
		if after, err = config.ParseRevision(q.After); err != nil {
			return config.Past{}, err
		}
	}
	known, err := s.readable(ctx)
	if err != nil {
		return config.Past{}, err
	}
	since := known.since()
	out := config.Past{Latest: storage.Revision(known.revision), Since: storage.Revision(since)}
	h := &historian{source: s.Name(), state: known, query: q, after: max(after, since), now: map[config.Key]*stored{}}
	out.Revisions, err = h.read(ctx)
	return out, err
}

// since is the oldest revision of which it is known what was stored.
func (s *state) since() uint64 {
	for id := range s.history.All() {
		return id.Revision - 1
	}
	return s.revision
}

// historian reads writes from the latest on.
type historian struct {
	source string
	state  *state
	query  config.Query
	after  uint64
	now    map[config.Key]*stored // what there was after the write that is read next, by key; nil is nothing
}

// read returns the revisions that are asked for.
func (h *historian) read(ctx context.Context) ([]config.Revision, error) {
	if h.query.Limit < 0 {
		return nil, ctx.Err()
	}
	type write struct {
		id   writeID
		past *pastWrite
	}
	var writes []write
	for id, p := range h.state.history.From(writeID{Revision: h.after + 1}) {
		if h.query.Key == (config.Key{}) || p.key == h.query.Key {
			writes = append(writes, write{id, p})
		}
	}
	var out []config.Revision
	for _, w := range slices.Backward(writes) {
		number := storage.Revision(w.id.Revision)
		if n := len(out); n == 0 || out[n-1].Number != number {
			if h.query.Limit > 0 && n == h.query.Limit || ctx.Err() != nil {
				break
			}
			out = append(out, config.Revision{Number: number, Who: w.past.who, When: w.past.when})
		}
		if err := h.add(&out[len(out)-1], w.past); err != nil {
			return nil, err
		}
	}
	for _, r := range out {
		slices.SortFunc(r.Writes, func(a, b config.Write) int { return a.Key.Compare(b.Key) })
	}
	return out, ctx.Err()
}

// add adds one write to its revision.
func (h *historian) add(r *config.Revision, p *pastWrite) error {
	now, seen := h.now[p.key]
	if !seen {
		if o, ok := h.state.objects.Get(p.key); ok {
			now = o.stored
		}
	}
	h.now[p.key] = p.before
	out := config.Write{Key: p.key}
	var err error
	if out.After, err = h.object(p.key, now); err != nil {
		return err
	}
	if out.Before, err = h.object(p.key, p.before); err != nil {
		return err
	}
	r.Writes = append(r.Writes, out)
	return nil
}

// object decodes an object; nil is none.
func (h *historian) object(key config.Key, s *stored) (*config.Object, error) {
	switch {
	case s == nil:
		return nil, nil
	case h.query.Bare:
		return &config.Object{Key: key, Revision: storage.Revision(s.Revision)}, nil
	}
	return s.decode(h.source, key)
}
