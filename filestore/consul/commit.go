package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
)

// commit is a change of the state that is made whole or not at all, as it is written in an entry.
// It says what is to be written and nothing that depends on the state, so that it can be tried
// again after another replica was faster. Whether it may be made was found out before it was
// written.
type commit struct {
	Records []recordWrite `json:"records,omitempty"`
	Objects *objectsWrite `json:"objects,omitempty"`
}

// recordWrite sets a record. Its texts need not be UTF-8.
type recordWrite struct {
	Table []byte `json:"table"`
	Name  []byte `json:"name"`
	// Value is null for a record that is deleted.
	Value []byte `json:"value"`
}

func (w recordWrite) key() recordKey { return recordKey{Table: string(w.Table), Name: string(w.Name)} }

// objectsWrite is one revision of the objects.
type objectsWrite struct {
	Who  string    `json:"who"`
	When time.Time `json:"when"`
	// Above is a revision that this one comes after, whatever the state says: one that was known
	// before Consul's state was restored from an older one.
	Above  uint64        `json:"above,omitempty"`
	Writes []objectWrite `json:"writes"`
}

// objectWrite sets one object.
type objectWrite struct {
	objectName
	// Object is null for one that is deleted. It keeps the time of creation of the one that it
	// replaces.
	Object *stored `json:"object"`
}

// objectName is a config.Key.
type objectName struct {
	Kind      config.Kind `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
}

func nameOf(k config.Key) objectName { return objectName{k.Kind, k.Namespace, k.Name} }

func (n objectName) key() config.Key {
	return config.Key{Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}
}

// encode is a commit as it is written.
func (c *commit) encode() (json.RawMessage, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a change: %w", err)
	}
	return b, nil
}

// decodeCommits reads the content of an entry. What this release does not know is an error: a
// change that is applied in part would make two truths.
func decodeCommits(body []byte) ([]*commit, error) {
	var out []*commit
	if err := decodeStrict(body, &out); err != nil {
		return nil, err
	}
	for i, c := range out {
		if c == nil {
			return nil, fmt.Errorf("change %d is null", i)
		}
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
	}
	return out, nil
}

// check says what keeps a commit from being applied to any state.
func (c *commit) check() error {
	for _, w := range c.Records {
		if len(w.Table) == 0 || len(w.Name) == 0 || len(w.Table)+len(w.Name) > record.MaxName ||
			len(w.Value) > record.MaxValue {
			return fmt.Errorf("record %.80q %.80q of %d bytes", w.Table, w.Name, len(w.Value))
		}
	}
	if c.Objects == nil {
		return nil
	}
	if len(c.Objects.Writes) == 0 {
		return errors.New("a revision without objects")
	}
	seen := make(map[objectName]bool, len(c.Objects.Writes))
	for _, w := range c.Objects.Writes {
		if w.Kind == "" || w.Namespace == "" || w.Name == "" || seen[w.objectName] {
			return fmt.Errorf("object %q", w.objectName)
		}
		seen[w.objectName] = true
	}
	return nil
}

// decodeStrict reads one value of JSON and wants no more, and no field that is not known.
func decodeStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end")
	}
	return nil
}
