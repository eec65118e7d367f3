package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxApplyBody is MaxApply on the wire: base64 makes four bytes of three, and JSON adds a
	// little.
	maxApplyBody = MaxApply/3*4 + 8<<20
	// maxViewed limits the files of a preview for the role viewer, in bytes, all together: parsing
	// may take 200 times their size in memory. maxViewedBody is that on the wire.
	maxViewed     = 8 << 20
	maxViewedBody = maxViewed/3*4 + 1<<20
	// storeTime is how long a write to the store may take to arrive and to be answered.
	storeTime = 2 * time.Minute
	// maxNumber bounds the number of a revision, in digits.
	maxNumber = 20
)

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
			release, err := s.reads.acquire(r.Context())
			if err != nil {
				return nil, err
			}
			defer release()
			return st.History(r.Context(), q)
		}},
	}
	for path, write := range map[string]func(*http.Request, StoreOptions) (any, error){
		"apply": func(r *http.Request, o StoreOptions) (any, error) {
			return st.Apply(r.Context(), pieces(r), o, who(r))
		},
		"delete": func(r *http.Request, o StoreOptions) (any, error) {
			return st.Delete(r.Context(), pieces(r), o, who(r))
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

// writing is the answer of what writes to the store, or shows what would be written: one at a time,
// the others wait.
func (s *Server) writing(write func(*http.Request, StoreOptions) (any, error), preview bool) func(*http.Request) (any,
	error) {
	turn := s.writes
	if preview {
		turn = s.reads
	}
	return func(r *http.Request) (any, error) {
		o, err := storeOptions(r)
		if err != nil {
			return nil, err
		}
		o.Preview = preview
		release, err := turn.acquire(r.Context())
		if err != nil {
			return nil, err
		}
		defer release()
		return write(r, o)
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
	return out, errors.Join(flag(q.Get("differences"), "differences", &out.Differences),
		flag(q.Get("all"), "all", &out.All))
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
		return NewError(ErrInvalid,
			fmt.Sprintf("the files have more than %d MiB together, for the role viewer: look at them in several steps",
				maxViewed>>20))
	case errors.As(err, &tooLarge):
		return NewError(ErrInvalid, fmt.Sprintf("the files have more than %d MiB together: write them in several steps",
			MaxApply>>20))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return NewError(ErrInvalid, "the request ended in the middle: nothing was done")
	}
	return NewError(ErrInvalid, fmt.Sprintf("the request's body is not what %s %s takes: %v", r.Method, r.URL.Path,
		err))
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
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, storePaths) &&
		!strings.HasSuffix(r.URL.Path, "/rollback")
}
