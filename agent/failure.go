package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// failureFile records why the last agent of a state folder failed, for "status" while no agent runs.
const failureFile = "failure.json"

// failure is why an agent ended.
type failure struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// maxFailure bounds its text, in bytes.
const maxFailure = 8 << 10

// KeepFailure records in the state folder of a joined workload why its agent failed. A BusyError is not recorded: another
// agent runs. Errors: the record cannot be written.
func KeepFailure(state string, why error) error {
	if _, busy := errors.AsType[*BusyError](why); busy {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(state, identityFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text := why.Error()
	b, err := json.Marshal(failure{time.Now(), strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")})
	if err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(state, failureFile), b); err != nil {
		return diskError("record why the agent failed", err)
	}
	return nil
}

// lastFailure is what KeepFailure recorded last; nil when there is none.
func lastFailure(state string) *failure {
	b, err := readSmall(filepath.Join(state, failureFile))
	if err != nil {
		return nil
	}
	var f failure
	if json.Unmarshal(b, &f) != nil || f.Text == "" {
		return nil
	}
	return &f
}

// forgetFailure removes the record.
func forgetFailure(state string) error { return removeMissing(filepath.Join(state, failureFile)) }
