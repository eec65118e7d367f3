package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// failureFile holds why the agent of a state folder could not start, or failed: "status" tells it when no agent runs.
const failureFile = "failure.json"

// failure is why an agent ended.
type failure struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// maxFailure bounds its text, in bytes.
const maxFailure = 8 << 10

// KeepFailure notes in the state folder of a workload that has joined why its agent ended. That another agent runs there is none
// of its business. Errors: it cannot be written.
func KeepFailure(state string, why error) error {
	if _, busy := errors.AsType[*BusyError](why); busy {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(state, identityLink)); err != nil {
		return nil // there is no workload here that anybody asks about
	}
	text := why.Error()
	b, err := json.Marshal(failure{time.Now(), strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")})
	if err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(state, failureFile), b); err != nil {
		return diskError("keep why the agent failed", err)
	}
	return nil
}

// lastFailure is what KeepFailure noted last; nil: nothing, or nothing that can be read.
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

// forgetFailure is for an agent that runs.
func forgetFailure(state string) error { return removeMissing(filepath.Join(state, failureFile)) }
