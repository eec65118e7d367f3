package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
)

// record is what is kept of one file.
type record struct {
	known, asOf time.Time
	edited      time.Time // as in file
	// body is the file as it was, or, when encoded, its objects as config.Encode writes them.
	body    []byte
	encoded bool
	// seen is the hash of the file that the body stands in for; nil when the body is the file.
	seen []byte
	// earlier are records of the file from before, the newest first, of which some release could not read all; they are kept on until
	// the file says all itself. None has earlier ones itself.
	earlier [][]byte
	left    []config.Key         // what has left the file since there are earlier records: they do not bring it back
	raw     []byte               // the record itself, as it was loaded
	bad     error                // why not even its head can be read
	objects []*config.Object     // to be encoded into body
	missed  map[string]time.Time // of no file: since when files are away, to be encoded into body
}

// recordHead is the first line of a kept record; the body follows.
type recordHead struct {
	Known   time.Time    `json:"known"`
	AsOf    time.Time    `json:"asOf"`
	Edited  time.Time    `json:"edited,omitzero"`
	Encoded bool         `json:"encoded,omitempty"`
	Seen    []byte       `json:"seen,omitempty"`
	Earlier [][]byte     `json:"earlier,omitempty"`
	Left    []config.Key `json:"left,omitempty"`
}

// record is what is to be kept of a file after a reading.
func (f *folder) record(x *file, r reading) *record {
	if clean(r.result) && !x.clashing {
		return &record{known: x.known, asOf: r.at, edited: x.edited, body: r.data}
	}
	return f.standIn(x)
}

// standIn is what is to be kept of a file whose present content is not in order: without what another file defined first,
// which is not in use.
func (f *folder) standIn(x *file) *record {
	counts := slices.DeleteFunc(slices.Clone(x.objects), func(o *config.Object) bool { return !x.held[o.Key] && f.takenBefore(x, o.Key) })
	return &record{known: x.known, asOf: x.goodAt, edited: x.edited, encoded: true, objects: counts, seen: slices.Clone(x.seen[:]), earlier: x.rest, left: x.leaves(counts)}
}

// same says that the content of a reading is kept already.
func (r record) same(read reading) bool {
	return read.err == nil && !r.encoded && clean(read.result) && bytes.Equal(r.body, read.data)
}

func (r *record) marshal() ([]byte, error) {
	body := r.body
	var err error
	switch {
	case r.encoded:
		body, err = config.Encode(r.objects)
	case r.missed != nil:
		body, err = json.Marshal(r.missed)
	}
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(recordHead{r.known, r.asOf, r.edited, r.encoded, r.seen, r.earlier, r.left})
	if err != nil {
		return nil, err
	}
	return append(append(head, '\n'), body...), nil
}

func parseRecord(b []byte) (record, error) {
	head, body, ok := bytes.Cut(b, []byte("\n"))
	var h recordHead
	if err := json.Unmarshal(head, &h); err != nil {
		return record{}, fmt.Errorf("the head of a kept record cannot be read: %w", err)
	}
	if !ok {
		return record{}, errors.New("a kept record has no content")
	}
	return record{known: h.Known, asOf: h.AsOf, edited: h.Edited, body: body, encoded: h.Encoded, seen: h.Seen, earlier: h.Earlier, left: h.Left, raw: b}, nil
}

// parse reads the kept content as that of a file of source.
func (r record) parse(name, source string) config.Result {
	if r.bad != nil {
		return config.Result{Unread: true, Problems: []config.Problem{{Severity: feed.Error, File: name, Text: r.bad.Error()}}}
	}
	parseAs := name
	if r.encoded {
		parseAs = "kept.yaml" // also when the file is JSON
	}
	result := config.ParseKept(parseAs, r.body)
	for _, o := range result.Objects {
		o.Origin.Source, o.Origin.File = source, name
		if r.encoded {
			o.Origin.Line = 0
		}
	}
	return result
}

// usable says that there is a record of a file that can be read.
func usable(kept map[string]record) bool {
	for name, r := range kept {
		if !aside(name) && r.bad == nil {
			return true
		}
	}
	return false
}

// keeper keeps last good contents over restarts.
type keeper struct {
	store  lastgood.Store // nil: nothing is kept
	source string
	writer *lastgood.Writer
	staged map[string]lastgood.Content // what is to be written, all at once
	lapsed []string                    // what is to be removed, with the rest or by itself
}

// awayName is where it is kept since when the folder is out of reach, missedName since when files are, latelyName when something was
// changed lately, and under goneFolder, by the file where it stood, what went lately: no file that is read is called so.
const (
	awayName   = "."
	missedName = ".missed"
	latelyName = ".lately"
	goneFolder = ".gone/"
)

// aside says that what is kept under a name is not the content of a file.
func aside(name string) bool { return name == awayName || hidden(name) }

// keepGap gathers what belongs together into one write.
const keepGap = 100 * time.Millisecond

func newKeeper(store lastgood.Store, source string, log hclog.Logger) *keeper {
	return &keeper{store: store, source: source, writer: lastgood.NewWriter(store, source, lastgood.Pace{Gather: keepGap}, log), staged: map[string]lastgood.Content{}}
}

// load returns what was kept.
func (k *keeper) load(ctx context.Context) (map[string]record, error) {
	if k.store == nil {
		return nil, nil
	}
	kept, err := k.store.LoadLastGood(ctx, k.source)
	if err != nil {
		return nil, err
	}
	out := make(map[string]record, len(kept))
	var bad []error
	for name, b := range kept {
		r, err := parseRecord(b)
		switch {
		case err == nil:
			out[name] = r
		case aside(name):
			bad = append(bad, fmt.Errorf("%s: %w", name, err))
			k.put(name, nil) // it is written anew when there is something to say
		default:
			out[name] = record{raw: b, bad: err, encoded: true}
		}
	}
	return out, errors.Join(bad...)
}

// missedOf is since when files are away, by what was kept.
func missedOf(kept map[string]record) (map[string]time.Time, error) {
	r, ok := kept[missedName]
	if !ok {
		return nil, nil
	}
	var out map[string]time.Time
	if err := json.Unmarshal(r.body, &out); err != nil {
		return nil, fmt.Errorf("since when files are missing cannot be read: %w", err)
	}
	return out, nil
}

// put notes what to keep of a file; nil removes it. It is written with all that is put before the next commit.
func (k *keeper) put(name string, r *record) {
	switch {
	case k.store == nil:
	case r == nil:
		k.staged[name] = nil
	default:
		k.staged[name] = r.marshal
	}
}

// lapse removes what is kept under a name, as it was kept for long enough: nothing else depends on that.
func (k *keeper) lapse(name string) {
	if k.store != nil {
		k.lapsed = append(k.lapsed, name)
	}
}

// commit has what was put written, all or nothing: what goes from one place and is kept at another is in none of them at no time.
func (k *keeper) commit() {
	if len(k.staged)+len(k.lapsed) == 0 {
		return
	}
	k.writer.Put(k.staged, k.lapsed...)
	k.staged, k.lapsed = map[string]lastgood.Content{}, nil
}

// Kept are the objects that were kept of a source, by its name, as lastgood.Store has them. The error tells of what cannot be
// read, which is left out.
func Kept(source string, contents map[string][]byte) ([]*config.Object, error) {
	var out []*config.Object
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		r, err := parseRecord(contents[name])
		switch {
		case aside(name):
		case err != nil:
			bad = append(bad, fmt.Errorf("%s: %w", name, err))
		default:
			objects, _, why := r.restored(name, source)
			out = append(out, objects...)
			if why != "" {
				bad = append(bad, fmt.Errorf("%s: %s", name, why))
			}
		}
	}
	return out, errors.Join(bad...)
}
