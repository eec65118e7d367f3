package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
)

// record is what is kept of one file.
type record struct {
	known, asOf time.Time
	// body is the file as it was, or, when encoded, its objects as config.Encode writes them.
	body    []byte
	encoded bool
	// seen is the hash of the file that the body stands in for; nil when the body is the file.
	seen    []byte
	objects []*config.Object // to be encoded into body
}

// recordHead is the first line of a kept record; the body follows.
type recordHead struct {
	Known   time.Time `json:"known"`
	AsOf    time.Time `json:"asOf"`
	Encoded bool      `json:"encoded,omitempty"`
	Seen    []byte    `json:"seen,omitempty"`
}

// record is what is to be kept of a file after a reading.
func (f *file) record(r reading) *record {
	if clean(r.result) {
		return &record{known: f.known, asOf: r.at, body: r.data}
	}
	return f.standIn()
}

// standIn is what is to be kept of a file whose present content is not in order.
func (f *file) standIn() *record {
	return &record{known: f.known, asOf: f.goodAt, encoded: true, objects: slices.Clone(f.objects), seen: slices.Clone(f.seen[:])}
}

// same says that the content of a reading is kept already.
func (r record) same(read reading) bool {
	return read.err == nil && !r.encoded && clean(read.result) && bytes.Equal(r.body, read.data)
}

func (r *record) marshal() ([]byte, error) {
	body := r.body
	if r.encoded {
		var err error
		if body, err = config.Encode(r.objects); err != nil {
			return nil, err
		}
	}
	head, err := json.Marshal(recordHead{r.known, r.asOf, r.encoded, r.seen})
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
	return record{known: h.Known, asOf: h.AsOf, body: body, encoded: h.Encoded, seen: h.Seen}, nil
}

// parse reads the kept content as that of a file of source.
func (r record) parse(name, source string) config.Result {
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

// keeper writes last good contents behind the folder's back, so that a slow or full disk delays nothing.
type keeper struct {
	store  LastGood // may be nil
	source string
	log    hclog.Logger
	wake   chan struct{} // cap 1
	status chan error    // cap 1; nil: well again. The latest counts
	ending chan struct{} // closed by end

	mu      sync.Mutex
	waiting map[string]*record // guarded by mu; nil: to be removed
}

func newKeeper(store LastGood, source string, log hclog.Logger) *keeper {
	return &keeper{store: store, source: source, log: log, wake: make(chan struct{}, 1), status: make(chan error, 1), ending: make(chan struct{}),
		waiting: map[string]*record{}}
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
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", name, err))
			continue
		}
		out[name] = r
	}
	return out, errors.Join(bad...)
}

// put notes what to keep of a file; nil removes it.
func (k *keeper) put(name string, r *record) {
	if k.store == nil {
		return
	}
	k.mu.Lock()
	k.waiting[name] = r
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) end() { close(k.ending) }

const (
	keepGap  = 100 * time.Millisecond // gathers what belongs together into one write
	keepTry  = time.Second            // from a failed write to the next try
	keepLast = 5 * time.Second        // for the last write
)

// run writes until end is called, and then what is left. It does not end with ctx: what was put before
// the end must not be lost.
func (k *keeper) run(ctx context.Context) {
	failing := false
	for ended := false; !ended; {
		gap := keepGap
		if failing {
			gap = keepTry
		} else {
			select {
			case <-k.wake:
			case <-k.ending:
			}
		}
		select {
		case <-time.After(gap):
		case <-k.ending:
			ended = true
		}
		err := k.flush(ctx)
		if err != nil && ended {
			k.log.Error("last good contents could not be kept for the next start", "error", err)
		}
		k.report(err)
		failing = err != nil
	}
}

// report replaces what was reported and not read yet.
func (k *keeper) report(err error) {
	select {
	case <-k.status:
	default:
	}
	k.status <- err
}

// flush writes all that waits. What could not be written waits on, unless it is outdated by then.
func (k *keeper) flush(ctx context.Context) error {
	k.mu.Lock()
	waiting := k.waiting
	k.waiting = map[string]*record{}
	k.mu.Unlock()
	contents, err := marshalAll(waiting)
	if len(contents) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepLast)
		defer cancel()
		if saveErr := k.store.SaveLastGood(ctx, k.source, contents); saveErr != nil {
			clear(contents)
			err = errors.Join(err, saveErr)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, r := range waiting {
		_, written := contents[name]
		if _, newer := k.waiting[name]; !written && !newer {
			k.waiting[name] = r
		}
	}
	return err
}

// marshalAll is what to write of each record, nil for one to be removed. Those that cannot be marshalled are
// not among it; the error names them.
func marshalAll(records map[string]*record) (map[string][]byte, error) {
	contents := make(map[string][]byte, len(records))
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(records)) { // one text for one error
		r := records[name]
		if r == nil {
			contents[name] = nil
			continue
		}
		b, err := r.marshal()
		if err != nil {
			bad = append(bad, fmt.Errorf("keep %s: %w", name, err))
			continue
		}
		contents[name] = b
	}
	return contents, errors.Join(bad...)
}
