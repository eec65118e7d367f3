package consul

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/lastgood"
)

// copyObjects adds to contents what differs between two states in objects and their history. A copy has all of them, and says of which
// place in the log, or none: who wrote it may have been an older release, which knew of records and addresses alone.
func copyObjects(contents map[string]lastgood.Content, old, next *state) {
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

// loadCopiedObjects is a state of a copy with its objects and their history; without any where these are not of the same place in the
// log, or cannot be read, for records and addresses count without them. What the copy has of them is removed then.
func (s *Store) loadCopiedObjects(known *state, contents map[string][]byte) *state {
	out := *known
	err := out.takeCopiedObjects(contents, s.applying)
	if err == nil {
		return &out
	}
	if !errors.Is(err, errUncopied) {
		s.cfg.Log.Error("the objects and the history in this replica's copy of what is in Consul cannot be used: they are known once Consul answers", "error", err)
	}
	gone := map[string]lastgood.Content{}
	for name := range contents {
		if strings.HasPrefix(name, copyObject) || strings.HasPrefix(name, copyPast) || name == copyWhole {
			gone[name] = nil
		}
	}
	s.copy.Put(gone)
	return known
}

// errUncopied says that the copy does not have the objects, or not those of the place in the log that it is of.
var errUncopied = errors.New("the copy lacks the objects")

// takeCopiedObjects adds the objects and the history of a copy. Errors: errUncopied, and what cannot be read; the state is of no use then.
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
