package admin

import (
	"errors"
	"net/http"
)

var (
	// ErrNotFound says that there is no object or proxy of that name.
	ErrNotFound = errors.New("not found")
	// ErrInvalid says that the question makes no sense: an unknown kind or type.
	ErrInvalid = errors.New("invalid request")
	// ErrNotRunning says that nobody answers at the socket.
	ErrNotRunning = errors.New("ashored is not running")
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

// status is the HTTP status of an error.
func status(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest
	default:
		return http.StatusInternalServerError
	}
}

// sentinel is the error of an HTTP status; nil when it has none.
func sentinel(code int) error {
	switch code {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusBadRequest:
		return ErrInvalid
	default:
		return nil
	}
}
