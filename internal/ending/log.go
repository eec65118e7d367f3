package ending

import (
	"errors"

	"github.com/hashicorp/go-hclog"
)

// logged is an error that was logged.
type logged struct{ error }

func (l logged) Unwrap() error { return l.error }

// Log logs the error that ends a program, because a line of text in a log of JSON would break its
// readers. It returns an error for which Logged returns true. It does nothing if err is nil.
func Log(log hclog.Logger, err error) error {
	if err == nil {
		return nil
	}
	log.Error("ended by a failure", "error", err)
	return logged{err}
}

// Logged reports whether err was logged by Log, so that main need not print it.
func Logged(err error) bool { return errors.As(err, &logged{}) }
