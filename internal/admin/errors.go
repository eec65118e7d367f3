package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/ashore-mesh/ashore/internal/feed"
)

var (
	// ErrNotFound says that there is no object or proxy of that name.
	ErrNotFound = errors.New("not found")
	// ErrInvalid says that the question makes no sense: an unknown kind or type.
	ErrInvalid = errors.New("invalid request")
	// ErrForbidden says that who asks does not have the role.
	ErrForbidden = errors.New("not allowed")
	// ErrConflict says that what is asked for does not fit what is, or has changed meanwhile.
	ErrConflict = errors.New("not now")
	// ErrBusy says that too much is asked for at once.
	ErrBusy = errors.New("too many requests")
	// ErrNotSetUp says that this control plane does not do what is asked for.
	ErrNotSetUp = errors.New("not set up")
	// ErrNotRunning says that nobody answers at the socket.
	ErrNotRunning = errors.New("ashored is not running")
	// ErrEnded is an ErrNotRunning that came while the question was under way: nobody knows what
	// became of it.
	ErrEnded = fmt.Errorf("%w any more", ErrNotRunning)
	// ErrSilent says that there was no answer in time.
	ErrSilent = errors.New("no answer in time")
)

// answer is an error with the text that the other side is to read, and a sentinel of above.
type answer struct {
	text string
	is   error
}

func (a *answer) Error() string { return a.text }
func (a *answer) Unwrap() error { return a.is }

// NewError is text for the operator that wraps one of the sentinels without repeating its words.
func NewError(is error, text string) error { return &answer{text: text, is: is} }

// refusalBody is how an error is answered.
type refusalBody struct {
	Error     string         `json:"error"`
	Problems  []feed.Problem `json:"problems,omitempty"`
	Conflicts []Conflict     `json:"conflicts,omitempty"`
}

// refusalOf is all that an error tells.
func refusalOf(err error) refusalBody {
	b := refusalBody{Error: err.Error()}
	if r, ok := errors.AsType[*Refusal](err); ok {
		b.Problems, b.Conflicts = r.Problems, r.Conflicts
	}
	return b
}

// statuses are the HTTP statuses of errors; any other error is one of the server.
func statuses() map[error]int {
	return map[error]int{
		ErrNotFound:  http.StatusNotFound,
		ErrInvalid:   http.StatusBadRequest,
		ErrForbidden: http.StatusForbidden,
		ErrConflict:  http.StatusConflict,
		ErrBusy:      http.StatusServiceUnavailable,
		ErrNotSetUp:  http.StatusNotImplemented,
	}
}

// status is the HTTP status of an error.
func status(err error) int {
	for is, code := range statuses() {
		if errors.Is(err, is) {
			return code
		}
	}
	return http.StatusInternalServerError
}

// sentinel is the error of an HTTP status; nil when it has none.
func sentinel(code int) error {
	for is, have := range statuses() {
		if have == code {
			return is
		}
	}
	return nil
}
