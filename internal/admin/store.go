package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// MaxApply bounds the files of one write to the store, in bytes, all together.
	MaxApply = 64 << 20
	// maxApplyBody is that on the wire: base64 makes four bytes of three, and JSON adds a little.
	maxApplyBody = MaxApply/3*4 + 8<<20
	// maxViewedBody is that of who may not write.
	maxViewedBody = maxViewedAll/3*4 + 1<<20
	// storeTime is how long a write to the store may take to arrive and to be answered.
	storeTime = 2 * time.Minute
	// maxViewed and maxViewedAll bound what is shown as it would be written to who may not write, of one file and of all, in
	// bytes: reading a text that is made for it costs some 200 times its size in memory.
	maxViewed    = 1 << 20
	maxViewedAll = 8 << 20
	// maxNumber bounds the number of a revision, in digits.
	maxNumber = 20
	// storePaths is what the paths of the store begin with.
	storePaths = "/v1/store/"
)

// Ref names an object, as operators name kinds.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "VirtualService shop/web".
func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Piece is a part of a write to the store: a file of configuration as it was written, or the name of an object.
type Piece struct {
	// File is the file's name for messages; its extension tells how to read it.
	File string `json:"file,omitempty"`
	Data []byte `json:"data,omitempty"`
	// Ref names an object to delete.
	Ref *Ref `json:"ref,omitempty"`
}

// Pieces are those of one write, as they come. An error is the last one.
type Pieces = iter.Seq2[Piece, error]

// StoreOptions say how to write.
type StoreOptions struct {
	// Preview writes nothing and tells what would be written, with the differences.
	Preview bool
	// At is a revision of the store: objects that were changed after it are conflicts. Empty: those that change while
	// the write is at work.
	At string
	// Force writes whatever others write meanwhile.
	Force bool
	// MissingOK deletes what is there, where some of it is not.
	MissingOK bool
}

// The actions on an object.
const (
	Created   = "created"
	Changed   = "changed"
	Deleted   = "deleted"
	Unchanged = "unchanged"
)

// ObjectChange is what a write does to one object.
type ObjectChange struct {
	Ref
	// Action is one of above.
	Action string `json:"action"`
	// Difference is the text of the object before and after, as "diff -u" shows it; only where it is asked for.
	Difference string `json:"difference,omitempty"`
	// Note is what else there is to know, such as that a file defines the object too, and is in use.
	Note string `json:"note,omitempty"`
}

// Written is what a write to the store did, or would do.
type Written struct {
	// Revision is the store's: after the write, or the present one when nothing was written.
	Revision string `json:"revision"`
	// Preview says that nothing was written.
	Preview bool           `json:"preview,omitempty"`
	Changes []ObjectChange `json:"changes"`
	// Warnings are of the files.
	Warnings []feed.Problem `json:"warnings,omitempty"`
}

// Conflict is an object that somebody else changed.
type Conflict struct {
	Ref
	// Revision is the one at which it was changed, by whom and when.
	Revision string    `json:"revision"`
	Who      string    `json:"who,omitempty"`
	When     time.Time `json:"when,omitzero"`
}

// Refusal is why a write to the store was not done, none of it.
type Refusal struct {
	// Text says it in one line, and Is is ErrInvalid, ErrConflict or another of the errors of this package.
	Text string
	Is   error
	// Problems are what is wrong with the files, warnings too.
	Problems []feed.Problem
	// Conflicts are what others changed.
	Conflicts []Conflict
}

func (r *Refusal) Error() string { return r.Text }
func (r *Refusal) Unwrap() error { return r.Is }

// RollbackRequest asks for what the store held at a revision.
type RollbackRequest struct {
	Revision string `json:"revision"`
	// Ref is the one object that is meant; nil: all.
	Ref *Ref `json:"ref,omitempty"`
}

// HistoryRequest asks for past writes.
type HistoryRequest struct {
	// Ref is the one object that is meant; nil: all.
	Ref *Ref
	// Limit is how many revisions there may be, the latest ones; 0: all.
	Limit int
	// Differences asks for these, and All for all changes of large revisions.
	Differences, All bool
}

// StoreHistory is what the store remembers of its writes.
type StoreHistory struct {
	// Latest is the present revision, and Since the oldest to which there is a way back.
	Latest string `json:"latest"`
	Since  string `json:"since"`
	// Revisions are the latest first.
	Revisions []StoreRevision `json:"revisions"`
}

// StoreRevision is one past write.
type StoreRevision struct {
	Revision string    `json:"revision"`
	Who      string    `json:"who"`
	When     time.Time `json:"when"`
	// Changes are what it did; of many only the first, unless all are asked for.
	Changes []ObjectChange `json:"changes"`
	// Count is how many objects it wrote, by action.
	Count map[string]int `json:"count"`
}

// Stores writes and reads the store of configuration. Safe for concurrent use. The errors of what writes are often a
// *Refusal.
type Stores interface {
	// Stored lists objects of the store, in use or not; an empty kind, namespace or name means all. Errors: ErrNotFound
	// for one name, ErrInvalid for the kind.
	Stored(ctx context.Context, kind, namespace, name string) ([]Object, error)
	// Apply writes the objects of files, all or none. Errors: ErrInvalid, ErrConflict.
	Apply(ctx context.Context, p Pieces, o StoreOptions, who string) (Written, error)
	// Delete deletes the objects of files, or those that are named, all or none. Errors: ErrInvalid, ErrConflict, ErrNotFound.
	Delete(ctx context.Context, p Pieces, o StoreOptions, who string) (Written, error)
	// Rollback writes what the store held at a revision. Errors: ErrInvalid, ErrConflict, ErrNotFound.
	Rollback(ctx context.Context, r RollbackRequest, o StoreOptions, who string) (Written, error)
	// History tells of past writes. Errors: ErrInvalid.
	History(ctx context.Context, r HistoryRequest) (StoreHistory, error)
}

func (s *Server) storeRoutes() []route {
	st := s.cfg.Store
	set := st != nil
	out := []route{
		{"GET " + storePaths + "objects", Viewer, set, func(r *http.Request) (any, error) {
			q := r.URL.Query()
			return st.Stored(r.Context(), q.Get("kind"), q.Get("namespace"), q.Get("name"))
		}},
		{"GET " + storePaths + "history", Viewer, set, func(r *http.Request) (any, error) {
			q, err := historyOf(r)
			if err != nil {
				return nil, err
			}
			if !q.Differences {
				return st.History(r.Context(), q)
			}
			return s.looks.wait(r.Context(), func() (any, error) { return st.History(r.Context(), q) })
		}},
	}
	for path, write := range map[string]func(*http.Request, StoreOptions) (any, error){
		"apply": func(r *http.Request, o StoreOptions) (any, error) {
			return st.Apply(r.Context(), s.pieces(r), o, who(r))
		},
		"delete": func(r *http.Request, o StoreOptions) (any, error) {
			return st.Delete(r.Context(), s.pieces(r), o, who(r))
		},
		"rollback": func(r *http.Request, o StoreOptions) (any, error) {
			var q RollbackRequest
			if err := decode(r, &q); err != nil {
				return nil, err
			}
			return st.Rollback(r.Context(), q, o, who(r))
		},
	} {
		// who may see may see what would be
		out = append(out, route{"POST " + storePaths + path, Operator, set, s.writing(write, false)},
			route{"POST " + storePaths + "preview/" + path, Viewer, set, s.writing(write, true)})
	}
	return out
}

// writing is the answer of what writes to the store, or shows what would be written: one at a time, the others wait.
func (s *Server) writing(write func(*http.Request, StoreOptions) (any, error), preview bool) func(*http.Request) (any, error) {
	line := &s.writes
	if preview {
		line = &s.looks
	}
	return func(r *http.Request) (any, error) {
		o, err := storeOptions(r)
		if err != nil {
			return nil, err
		}
		o.Preview = preview
		return line.wait(r.Context(), func() (any, error) { return write(r, o) })
	}
}

// storeOptions reads how to write.
func storeOptions(r *http.Request) (StoreOptions, error) {
	q := r.URL.Query()
	o := StoreOptions{At: q.Get("at")}
	if len(o.At) > maxNumber {
		return o, NewError(ErrInvalid, fmt.Sprintf("%.20q… is not the number of a revision", o.At))
	}
	return o, errors.Join(flag(q.Get("force"), "force", &o.Force), flag(q.Get("missingOK"), "missingOK", &o.MissingOK))
}

// flag reads a value that is true or false; empty is false.
func flag(text, name string, into *bool) (err error) {
	if text == "" {
		return nil
	}
	if *into, err = strconv.ParseBool(text); err != nil {
		return NewError(ErrInvalid, fmt.Sprintf("%s is %.40q: want true or false", name, text))
	}
	return nil
}

// historyOf is which past is asked for.
func historyOf(r *http.Request) (HistoryRequest, error) {
	q := r.URL.Query()
	var out HistoryRequest
	if q.Get("kind") != "" {
		out.Ref = &Ref{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}
	}
	if text := q.Get("limit"); text != "" {
		var err error
		if out.Limit, err = strconv.Atoi(text); err != nil || out.Limit < 0 {
			return out, NewError(ErrInvalid, fmt.Sprintf("limit is %.40q: want 0 or more", text))
		}
	}
	return out, errors.Join(flag(q.Get("differences"), "differences", &out.Differences), flag(q.Get("all"), "all", &out.All))
}

// pieces reads a body, of who may not write within bounds.
func (s *Server) pieces(r *http.Request) Pieces {
	all := pieces(r)
	if p, err := peerOf(r); err == nil && s.cfg.Role(p) >= Operator {
		return all
	}
	return func(yield func(Piece, error) bool) {
		size := 0
		for p, err := range all {
			if size += len(p.Data); err == nil && (len(p.Data) > maxViewed || size > maxViewedAll) {
				p, err = Piece{}, NewError(ErrInvalid, fmt.Sprintf("%s has %d bytes, of %d: for the role viewer a file may have %d MiB, and all together %d", p.File, len(p.Data), size, maxViewed>>20, maxViewedAll>>20))
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// pieces reads a body piece by piece: JSON objects one after another.
func pieces(r *http.Request) Pieces {
	return func(yield func(Piece, error) bool) {
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		for {
			var p Piece
			err := d.Decode(&p)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(p, badPiece(r, err))
				return
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}

// badPiece is why a body cannot be read.
func badPiece(r *http.Request, err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge) && tooLarge.Limit == maxViewedBody:
		return NewError(ErrInvalid, fmt.Sprintf("the files have more than %d MiB together, for the role viewer: look at them in several steps", maxViewedAll>>20))
	case errors.As(err, &tooLarge):
		return NewError(ErrInvalid, fmt.Sprintf("the files have more than %d MiB together: write them in several steps", MaxApply>>20))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return NewError(ErrInvalid, "the request ended in the middle: nothing was done")
	}
	return NewError(ErrInvalid, fmt.Sprintf("the request's body is not what %s %s takes: %v", r.Method, r.URL.Path, err))
}

// bodyLimit bounds the body of a question, in bytes.
func bodyLimit(r *http.Request, role Role) int64 {
	switch {
	case !storeWrite(r):
		return maxBody
	case role < Operator:
		return maxViewedBody
	}
	return maxApplyBody
}

// storeWrite says that a question brings files.
func storeWrite(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, storePaths) && !strings.HasSuffix(r.URL.Path, "/rollback")
}
