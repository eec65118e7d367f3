package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// largeApply is from how many changes on an Apply is written by itself.
const largeApply = 100

// Get implements config.Store.
func (s *Store) Get(ctx context.Context, key config.Key) (*config.Object, error) {
	known, err := s.readable(ctx)
	if err != nil {
		return nil, err
	}
	o, ok := known.objects.Get(key)
	switch {
	case !ok:
		return nil, storage.NotFound(key)
	case o.decoded == nil:
		return nil, fmt.Errorf("%s: %s", key, o.problem)
	}
	return o.decoded, nil
}

// List implements config.Store.
func (s *Store) List(ctx context.Context, kind config.Kind, namespace string) ([]*config.Object, error) {
	known, err := s.readable(ctx)
	if err != nil {
		return nil, err
	}
	var out []*config.Object
	for k, o := range known.objects.All() {
		if o.decoded != nil && (kind == "" || k.Kind == kind) && (namespace == "" || k.Namespace == namespace) {
			out = append(out, o.decoded)
		}
	}
	return out, nil
}

// Unusable are the objects that List leaves out because this release cannot read them, in the order
// of their keys. Errors: ErrUnread.
func (s *Store) Unusable(ctx context.Context) ([]storage.Unusable, error) {
	known, err := s.readable(ctx)
	if err != nil {
		return nil, err
	}
	var out []storage.Unusable
	for k, o := range known.objects.All() {
		if o.decoded == nil {
			out = append(out, storage.Unusable{Key: k, Why: o.problem})
		}
	}
	return out, nil
}

// readable is what is known of objects, the latest as long as Consul answers; after a start while
// it is away, what the copy has. Errors: ErrUnread.
func (s *Store) readable(ctx context.Context) (*state, error) {
	if err := s.fresh(ctx); err != nil {
		return nil, err
	}
	known := s.state.Load()
	if !known.knowsObjects() {
		return nil, s.unread()
	}
	return known, nil
}

// unread is ErrUnread with the reason.
func (s *Store) unread() error {
	now := s.Standing()
	return fmt.Errorf("the objects in the store %s and their history were %w, and this ashored's copy, by which it began, has neither: an earlier release kept it, or it was damaged, as the log says; they are known once Consul answers: %s", s.cfg.Options.Prefix, ErrUnread, now.Error)
}

// Put implements config.Store. An object that is new and has no creation time gets the present.
func (s *Store) Put(ctx context.Context, o *config.Object, who string) (*config.Object, error) {
	after, err := s.apply(ctx, []config.Change{{Key: o.Key, Object: o, Revision: o.Revision}}, who)
	if err != nil {
		return nil, err
	}
	return after.objects.At(o.Key).decoded, nil
}

// Delete implements config.Store.
func (s *Store) Delete(ctx context.Context, key config.Key, revision, who string) error {
	_, err := s.apply(ctx, []config.Change{{Key: key, Revision: revision}}, who)
	return err
}

// Apply implements config.Store. All of changes get one revision. Without changes it fails too
// while Consul cannot be asked.
func (s *Store) Apply(ctx context.Context, changes []config.Change, who string) (string, error) {
	after, err := s.apply(ctx, changes, who)
	if err != nil {
		return "", err
	}
	return storage.Revision(after.revision), nil
}

// apply writes all of changes, or none, and returns the state after it.
func (s *Store) apply(ctx context.Context, changes []config.Change, who string) (*state, error) {
	write := &objectsWrite{Who: who, When: time.Now().UTC(), Writes: make([]objectWrite, len(changes))}
	for i, c := range changes {
		if err := storage.CheckChange(c); err != nil {
			return nil, err
		}
		write.Writes[i] = objectWrite{objectName: nameOf(c.Key)}
		if c.Object == nil {
			continue
		}
		var err error
		if write.Writes[i].Object, err = keep(c.Object); err != nil {
			return nil, err
		}
	}
	made := &commit{Objects: write}
	ahead := made
	if known := s.state.Load(); len(changes) == 0 || known.checkChanges(changes) != nil {
		ahead = nil // it comes to nothing, in all likelihood
	}
	after, err := s.propose(ctx, len(changes) >= largeApply, ahead, func(known *state) (*commit, error) {
		if err := known.checkChanges(changes); err != nil || len(changes) == 0 {
			return nil, err
		}
		if s.revision > known.revision && write.Above != s.revision { // Consul was brought back to an earlier one
			made = &commit{Objects: &objectsWrite{Who: who, When: write.When, Above: s.revision, Writes: write.Writes}}
			write = made.Objects
		}
		return made, nil
	})
	switch {
	case err == nil || expected(err):
		return after, err
	case errors.Is(err, ErrUnknown):
		return nil, fmt.Errorf("write to the store %s: %w; its history tells when Consul answers again",
			s.cfg.Options.Prefix, err)
	}
	return nil, fmt.Errorf("write to the store %s: %w", s.cfg.Options.Prefix, err)
}

// expected says that an error is about what was to be written, or that the caller has gone.
func expected(err error) bool {
	return slices.ContainsFunc([]error{config.ErrConflict, config.ErrNotFound, storage.ErrTwice, context.Canceled,
		context.DeadlineExceeded}, func(e error) bool { return errors.Is(err, e) })
}

// checkChanges compares revisions.
func (s *state) checkChanges(changes []config.Change) error {
	if s.partial {
		return ErrUnread
	}
	return storage.CheckAll(changes, func(k config.Key) *config.Object {
		o, ok := s.objects.Get(k)
		if !ok {
			return nil
		}
		return o.decoded
	}, func(k config.Key) bool { _, ok := s.objects.Get(k); return ok })
}
