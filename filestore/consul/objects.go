package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/record"
)

// The tables of the log of configuration.
const (
	objectTable  = "object"  // encoded objects, by storage.ObjectKey
	historyTable = "history" // storage.PastWrite, by historyName
)

// historyName is the name of a past write. The order of names is that of revisions.
func historyName(revision uint64, key config.Key) string {
	return fmt.Sprintf("%016d\x00%s", revision, storage.ObjectKey(key))
}

func parseHistoryName(name string) (k storage.PastKey, err error) {
	number, rest, _ := strings.Cut(name, "\x00")
	if k.Revision, err = config.ParseRevision(number); err != nil {
		return k, err
	}
	k.Key, err = storage.ParseObjectKey(rest)
	return k, err
}

// historyOverhead is what a past write takes besides its texts, in bytes.
const historyOverhead = 256

// decodeObject is the decoder of the log of configuration.
func (s *Store) decodeObject(k record.Key, version string, content []byte) *value {
	v := &value{version: version, content: content}
	if k.Table != objectTable {
		return v
	}
	key, err := storage.ParseObjectKey(k.Name)
	if err == nil {
		v.object, err = storage.DecodeObject(s.Name(), key, content)
	}
	if err != nil {
		v.problem = fmt.Sprintf("the stored object cannot be read (%v): apply a valid version of it", err)
	}
	return v
}

func objectKey(k config.Key) record.Key {
	return record.Key{Table: objectTable, Name: storage.ObjectKey(k)}
}

// objects are the stored objects in the order of their keys.
func (s *state) objects() iter.Seq2[config.Key, *value] {
	return func(yield func(config.Key, *value) bool) {
		for name, v := range s.table(objectTable) {
			key, err := storage.ParseObjectKey(name)
			if err == nil && !yield(key, v) {
				return
			}
		}
	}
}

// stored is the value of an object; the zero value if there is none.
func (s *state) stored(k config.Key) value {
	if v := s.records.At(objectKey(k)); v != nil {
		return *v
	}
	return value{}
}

// Get implements config.Store.
func (s *Store) Get(ctx context.Context, key config.Key) (*config.Object, error) {
	known, err := s.config.latest(ctx)
	if err != nil {
		return nil, err
	}
	v := known.stored(key)
	switch {
	case v.content == nil:
		return nil, storage.NotFound(key)
	case v.object == nil:
		return nil, fmt.Errorf("%s: %s", key, v.problem)
	}
	return v.object, nil
}

// List implements config.Store.
func (s *Store) List(ctx context.Context, kind config.Kind, namespace string) ([]*config.Object, error) {
	known, err := s.config.latest(ctx)
	if err != nil {
		return nil, err
	}
	var out []*config.Object
	for k, v := range known.objects() {
		if v.object != nil && (kind == "" || k.Kind == kind) && (namespace == "" || k.Namespace == namespace) {
			out = append(out, v.object)
		}
	}
	return out, nil
}

// Apply implements config.Store. A new object without a creation time is created now. Errors besides:
// ErrAway, ErrUnknown.
func (s *Store) Apply(ctx context.Context, changes []config.Change, who string) (string, error) {
	for _, c := range changes {
		if err := storage.CheckChange(c); err != nil {
			return "", err
		}
	}
	after, err := s.config.commit(ctx, func(known *state) ([]item, error) { return s.plan(known, changes, who) })
	if errors.Is(err, ErrAway) || errors.Is(err, ErrUnknown) {
		err = fmt.Errorf("write to the store %s: %w", s.cfg.Options.Prefix, err)
	}
	if err != nil {
		return "", err
	}
	return storage.Revision(after.Revision), nil
}

// plan returns what changes write into a state. Errors: as storage.CheckAll.
func (s *Store) plan(known *state, changes []config.Change, who string) ([]item, error) {
	err := storage.CheckAll(changes, func(k config.Key) *config.Object { return known.stored(k).object },
		func(k config.Key) bool { return known.stored(k).content != nil })
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	revision, now := known.Revision+1, time.Now().UTC()
	var objects, history []item
	size := 0
	for _, c := range changes {
		before := known.stored(c.Key)
		past := storage.PastWrite{Who: who, When: now}
		if before.object != nil {
			past.Before = before.content
		}
		i := item{Table: historyTable, Name: historyName(revision, c.Key)}
		if i.Value, err = json.Marshal(past); err != nil {
			return nil, fmt.Errorf("write %s: %w", c.Key, err)
		}
		history = append(history, i)
		size += historySize(i.Name, i.Value)
		i = item{Table: objectTable, Name: storage.ObjectKey(c.Key)}
		if c.Object != nil {
			o := *c.Object
			if before.object != nil {
				o.Created = before.object.Created
			} else if o.Created.IsZero() {
				o.Created = now
			}
			if i.Value, err = storage.EncodeObject(&o, revision); err != nil {
				return nil, err
			}
		}
		objects = append(objects, i)
	}
	return slices.Concat(objects, history, known.trim(s.cfg.HistoryBytes-size)), nil
}

// trim returns the deletion of the oldest revisions in the history, so that those that stay have at
// most a number of bytes.
func (s *state) trim(maxBytes int) (out []item) {
	size := 0
	for k, v := range s.table(historyTable) {
		size += historySize(k, v.content)
	}
	trimmed := ""
	for name, v := range s.table(historyTable) {
		revision, _, _ := strings.Cut(name, "\x00")
		if size <= maxBytes && revision != trimmed {
			break
		}
		trimmed = revision
		size -= historySize(name, v.content)
		out = append(out, item{Table: historyTable, Name: name})
	}
	return out
}

func historySize(name string, value []byte) int { return len(name) + len(value) + historyOverhead }

// History implements config.Store.
func (s *Store) History(ctx context.Context, q config.Query) (config.Past, error) {
	known, err := s.config.latest(ctx)
	if err != nil {
		return config.Past{}, err
	}
	h := storage.Historian{Source: s.Name(), Query: q, Latest: known.Revision,
		Stored: func(k config.Key) []byte { return known.stored(k).content }}
	for name := range known.table(historyTable) {
		oldest, err := parseHistoryName(name)
		if err != nil {
			return config.Past{}, err
		}
		h.Oldest = oldest.Revision
		break
	}
	return h.Past(ctx, func(yield func(storage.PastKey, []byte) bool) {
		var names []string
		for name := range known.table(historyTable) {
			names = append(names, name)
		}
		for _, name := range slices.Backward(names) {
			k, err := parseHistoryName(name)
			if err == nil && !yield(k, known.records.At(record.Key{Table: historyTable, Name: name}).content) {
				return
			}
		}
	})
}
