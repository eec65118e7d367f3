package storage

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/config"
)

// ErrTwice is for an Apply that names a key twice.
var ErrTwice = errors.New("named twice in one write")

// CheckChange refuses a change that could not be read back. Whether an object makes sense is for
// config.Validate.
func CheckChange(c config.Change) error {
	key, o := c.Key, c.Object
	if key.Name == "" || key.Namespace == "" || strings.ContainsRune(string(key.Kind)+key.Namespace+key.Name, 0) {
		return fmt.Errorf("write %q: an object needs a namespace and a name, without zero bytes", key)
	}
	info, ok := config.Info(key.Kind)
	if !ok {
		return fmt.Errorf("write %s: unknown kind %q", key, key.Kind)
	}
	if o == nil {
		return nil
	}
	if o.Key != key {
		return fmt.Errorf("write %s: the object's own key is %s", key, o.Key)
	}
	if o.Spec == nil {
		return fmt.Errorf("write %s: it has no spec", key)
	}
	if got, want := o.Spec.ProtoReflect().Descriptor().FullName(), info.NewSpec().ProtoReflect().Descriptor().FullName(); got != want {
		return fmt.Errorf("write %s: its spec is a %s, not a %s", key, got, want)
	}
	return nil
}

// CheckAll compares the revisions that changes name with what a store has: have is the stored
// object, nil when there is none, and unreadable says that there is one which cannot be read.
// Errors: ErrTwice, config.ErrNotFound, config.ErrConflict.
func CheckAll(changes []config.Change, have func(config.Key) *config.Object, unreadable func(config.Key) bool) error {
	seen := make(map[config.Key]bool, len(changes))
	for _, c := range changes {
		if seen[c.Key] {
			return fmt.Errorf("%s: %w", c.Key, ErrTwice)
		}
		seen[c.Key] = true
		stored := have(c.Key)
		if c.Object == nil && stored == nil && !unreadable(c.Key) {
			return NotFound(c.Key)
		}
		if err := checkRevision(c.Key, c.Revision, stored); err != nil {
			return err
		}
	}
	return nil
}

// checkRevision compares the revision that a writer read with the stored object, nil when there is
// none.
func checkRevision(key config.Key, want string, have *config.Object) error {
	switch {
	case want == "", want == config.Absent && have == nil:
		return nil
	case want == config.Absent:
		return fmt.Errorf("%s: %w: it was created meanwhile, at revision %s; read it", key, config.ErrConflict,
			have.Revision)
	case have == nil:
		return fmt.Errorf("%s: %w: it is at revision %s no more, it was deleted", key, config.ErrConflict, want)
	case have.Revision != want:
		return fmt.Errorf("%s: %w: it is at revision %s, not %s; read it again", key, config.ErrConflict, have.Revision,
			want)
	}
	return nil
}

// NotFound is config.ErrNotFound with what was looked for.
func NotFound(key config.Key) error {
	return fmt.Errorf("%s: %w", key, config.ErrNotFound)
}

// Revision is the number of a revision as text.
func Revision(n uint64) string { return strconv.FormatUint(n, 10) }
