package filestore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// maxEarlier bounds the records of a file that are kept on because this release cannot read all of them, in bytes: there is room for
// two files of the largest size. The oldest one is kept on whatever its size.
const maxEarlier = 2 * config.MaxFileSize

// restored are the objects of a record, those of earlier ones besides that could not be read then, and did not leave the file since;
// why is empty when all of it can be read now, and rest what is to be kept on until the file says all itself, the newest first.
func (r record) restored(name, source string) (objects []*config.Object, rest [][]byte, why string) {
	objects, why = r.readable(name, source)
	if why != "" {
		rest = append(rest, withoutEarlier(r.raw))
	}
	have := keysOf(objects)
	for _, k := range r.left {
		have[k] = true
	}
	for _, raw := range r.earlier {
		e, err := parseRecord(raw)
		if err != nil {
			e = record{bad: err}
		}
		more, missing := e.readable(name, source)
		for _, o := range more {
			if !have[o.Key] {
				have[o.Key], objects = true, append(objects, o)
			}
		}
		why = cmp.Or(why, missing)
		if !slices.ContainsFunc(rest, func(kept []byte) bool { return sameContent(kept, raw) }) {
			rest = append(rest, raw)
		}
	}
	fits := bounded(rest)
	if why != "" && len(fits) < len(rest) {
		why += fmt.Sprintf("; of %d earlier contents the %d oldest are kept on, as together they have more than %d bytes", len(rest), len(fits), maxEarlier)
	}
	return objects, fits, why
}

// leaves are the objects that were in a file since it has earlier records, and are not among those that are to be kept of it now: these
// records do not bring them back.
func (f *file) leaves(now []*config.Object) []config.Key {
	if len(f.rest) == 0 {
		return nil
	}
	is := keysOf(now)
	maps.Copy(f.had, is)
	left := slices.DeleteFunc(slices.Collect(maps.Keys(f.had)), func(k config.Key) bool { return is[k] })
	slices.SortFunc(left, config.Key.Compare)
	return left
}

// readable are the objects of a record by itself; why is empty when that is all of it.
func (r record) readable(name, source string) (objects []*config.Object, why string) {
	result := r.parse(name, source)
	if i := slices.IndexFunc(result.Problems, func(p config.Problem) bool { return p.Severity == feed.Error }); i >= 0 {
		why = result.Problems[i].String()
	}
	return result.Objects, why
}

// sameContent says that two records say the same, whenever that was.
func sameContent(a, b []byte) bool {
	x, errX := parseRecord(a)
	y, errY := parseRecord(b)
	if errX != nil || errY != nil {
		return bytes.Equal(a, b)
	}
	return x.encoded == y.encoded && bytes.Equal(x.body, y.body)
}

// bounded are those of records, the newest first, that may be kept on: the oldest have what no later one does.
func bounded(records [][]byte) [][]byte {
	size := 0
	for i, raw := range slices.Backward(records) {
		if size += len(raw); size > maxEarlier && i < len(records)-1 {
			return records[i+1:]
		}
	}
	return records
}

// withoutEarlier is a record as it was loaded, without the earlier ones in it. What this release does not know of its head stays.
func withoutEarlier(raw []byte) []byte {
	head, body, _ := bytes.Cut(raw, []byte("\n"))
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(head, &fields); err != nil || fields["earlier"] == nil {
		return raw // there is none in it that could be told
	}
	delete(fields, "earlier")
	delete(fields, "left")
	head, err := json.Marshal(fields)
	if err != nil {
		return raw
	}
	return slices.Concat(head, []byte("\n"), body)
}
