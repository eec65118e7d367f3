package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/ashore-mesh/ashore/internal/feed"
)

var (
	// ErrNotFound says that there is no object, proxy or workload of that name.
	ErrNotFound = errors.New("not found")
	// ErrInvalid says that the request is invalid, such as an unknown kind.
	ErrInvalid = errors.New("invalid request")
	// ErrForbidden says that the user does not have the role.
	ErrForbidden = errors.New("not allowed")
	// ErrConflict says that the request does not fit the present state.
	ErrConflict = errors.New("not now")
	// ErrBusy says that there are too many requests at once.
	ErrBusy = errors.New("too many requests")
	// ErrNotSetUp says that this control plane does not have what the request is about.
	ErrNotSetUp = errors.New("not set up")
	// ErrNotRunning says that no ashored listens on the socket.
	ErrNotRunning = errors.New("ashored is not running")
	// ErrEnded is an ErrNotRunning during a request, whose outcome is unknown.
	ErrEnded = fmt.Errorf("%w any more", ErrNotRunning)
	// ErrSilent says that there was no response in time.
	ErrSilent = errors.New("no answer in time")
)

// codes are the HTTP statuses of errors. Any other error is one of the server.
func codes() map[error]int {
	return map[error]int{
		ErrNotFound:  http.StatusNotFound,
		ErrInvalid:   http.StatusBadRequest,
		ErrForbidden: http.StatusForbidden,
		ErrConflict:  http.StatusConflict,
		ErrBusy:      http.StatusServiceUnavailable,
		ErrNotSetUp:  http.StatusNotImplemented,
	}
}

// Refusal is the error of a call, as it is sent to the client.
type Refusal struct {
	// Text is for the operator, and Is one of the errors of this package or nil.
	Text string `json:"error"`
	Is   error  `json:"-"`
	// Problems are those of the files of a write, warnings too.
	Problems []feed.Problem `json:"problems,omitempty"`
	// Code is the HTTP status of Is. It is set when the refusal is sent.
	Code int `json:"code"`
}

func (r *Refusal) Error() string { return r.Text }
func (r *Refusal) Unwrap() error { return r.Is }

// NewError returns an error with a text for the operator. is is one of the errors of this package.
func NewError(is error, format string, args ...any) error {
	return &Refusal{Is: is, Text: fmt.Sprintf(format, args...)}
}

// refusalOf returns an error as it is sent.
func refusalOf(err error) *Refusal {
	out := &Refusal{Text: err.Error(), Code: http.StatusInternalServerError}
	if r, ok := errors.AsType[*Refusal](err); ok {
		out.Problems = r.Problems
	}
	for is, code := range codes() {
		if errors.Is(err, is) {
			out.Code = code
		}
	}
	return out
}

// received returns a refusal with the error that its code stands for.
func (r *Refusal) received() *Refusal {
	for is, code := range codes() {
		if code == r.Code {
			r.Is = is
		}
	}
	return r
}
