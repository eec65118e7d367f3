package ending

import (
	"errors"

	"github.com/hashicorp/go-hclog"
)

// told is a failure that the log has.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

// Log writes the failure that a program ends by to its log, where that is for programs to read and
// a line of text beside it would break them. It returns err, which Told knows again. Without a
// failure it does nothing.
func Log(log hclog.Logger, err error) error {
	if err == nil {
		return nil
	}
	log.Error("ended by a failure", "error", err)
	return told{err}
}

// Told says whether the log has err, so that nothing else need tell it.
func Told(err error) bool { return errors.As(err, &told{}) }
