package consul

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/writebehind"
)

// copyObjects adds to contents what differs between two states in objects and their history. A copy
// has all of them, and says of which place in the log, or none.
func copyObjects(contents map[string]writebehind.Encode, old, next *state) {
	for c := range next.objects.Diff(old.objects) {
		name, key, o := copiedObject(c.Key), c.Key, c.New
		if contents[name] = nil; c.HasNew {
			contents[name] = func() ([]byte, error) { return json.Marshal(objectItem{nameOf(key), o.stored}) }
		}
	}
	for c := range next.history.Diff(old.history) {
		name, id, p := copiedPast(c.Key), c.Key, c.New
		if contents[name] = nil; c.HasNew {
			contents[name] = func() ([]byte, error) { return json.Marshal(pastItemOf(id, p)) }
		}
	}
	contents[copyWhole] = nil
	if at := next.position; next.Log != "" && next.knowsObjects() {
		contents[copyWhole] = func() ([]byte, error) { return json.Marshal(at) }
	}
}

func copiedObject(k config.Key) string {
	return copyObject + string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name
}

func copiedPast(id writeID) string { return fmt.Sprintf("%s%d/%d", copyPast, id.Revision, id.Place) }

// copiedObjects are those of the contents of a copy that tell of objects and their history.
func copiedObjects(contents map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	for name, c := range contents {
		if name == copyWhole || strings.HasPrefix(name, copyObject) || strings.HasPrefix(name, copyPast) {
			out[name] = c
		}
	}
	return out
}

// sweepCopied adds the removal of what the copy had of objects before the start to the first
// contents after it: these have all that there is.
func (s *Store) sweepCopied(contents map[string]writebehind.Encode) {
	for name := range s.uncopied {
		if _, known := contents[name]; !known {
			contents[name] = nil
		}
	}
	s.uncopied = nil
}

// loadCopiedObjects has the copy that stands in tell of objects and their history; of none where
// these are not of the same place in the log, or cannot be read, for records count without them.
// They are removed then. Its caller has the turn. It takes a while, so that a start to which Consul
// answers does without.
func (s *Store) loadCopiedObjects() {
	known := *s.state.Load()
	if !known.partial {
		return // Consul was read, and cannot be written
	}
	err := known.takeCopiedObjects(s.uncopied, s.applying)
	if err == nil {
		s.state.Store(&known)
		s.uncopied = nil
		return
	}
	if !errors.Is(err, errUncopied) {
		s.cfg.Log.Error("the objects and the history in this replica's copy of what is in Consul cannot be used: they are known once Consul answers", "error", err)
	}
	gone := map[string]writebehind.Encode{}
	s.sweepCopied(gone)
	s.copy.Put(gone)
}

// errUncopied says that the copy does not have the objects, or not those of the place in the log
// that it is of.
var errUncopied = errors.New("the copy lacks the objects")

// takeCopiedObjects adds the objects and the history of a copy. Errors: errUncopied, and what
// cannot be read; the state is of no use then.
func (s *state) takeCopiedObjects(contents map[string][]byte, k keeping) error {
	if contents[copyWhole] == nil {
		return errUncopied
	}
	var at position
	if err := decodeStrict(contents[copyWhole], &at); err != nil {
		return fmt.Errorf("read %s: %w", copyWhole, err)
	}
	if at != s.position {
		return errUncopied
	}
	for name, content := range contents {
		if err := s.takeCopiedObject(name, content, k); err != nil {
			return fmt.Errorf("read %q: %w", name, err)
		}
	}
	s.copied = true
	return nil
}

// takeCopiedObject adds one content of a copy, if it is an object or a past write.
func (s *state) takeCopiedObject(name string, content []byte, k keeping) error {
	switch {
	case strings.HasPrefix(name, copyObject):
		var o objectItem
		if err := decodeStrict(content, &o); err != nil {
			return err
		}
		return s.takeObject(&o, k)
	case strings.HasPrefix(name, copyPast):
		var p pastItem
		if err := decodeStrict(content, &p); err != nil {
			return err
		}
		return s.takePast(&p)
	}
	return nil
}
