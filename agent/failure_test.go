package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Why an agent could not run is in the status when none does, until one does; of a folder without a workload nothing is kept.
func TestFailure(t *testing.T) {
	t.Parallel()
	k := kept(t, newMesh(t, "cluster.local"), time.Hour)
	dir := k.store.dir
	text := func() string {
		t.Helper()
		var b strings.Builder
		if err := OfflineReport(dir).Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if err := errors.Join(KeepFailure(dir, errors.New("127.0.0.2:15020 is in use")), KeepFailure(dir, &BusyError{Dir: dir})); err != nil {
		t.Fatal(err)
	}
	if got := text(); !strings.Contains(got, "it ended 0s ago: 127.0.0.2:15020 is in use") || !strings.Contains(got, "mend what ended the agent, and start the agent") {
		t.Errorf("status:\n%s", got)
	}
	if err := forgetFailure(dir); err != nil {
		t.Fatal(err)
	}
	if got := text(); strings.Contains(got, "15020") {
		t.Errorf("status once an agent ran:\n%s", got)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, failureFile), []byte("{"), 0o600), os.Remove(filepath.Join(dir, identityFile))); err != nil {
		t.Fatal(err)
	}
	if got := text(); strings.Contains(got, "it ended") || !strings.Contains(got, "has not joined the mesh") || !strings.Contains(got, "it starts the agent too") {
		t.Errorf("status without an identity:\n%s", got)
	}
	dir = filepath.Join(dir, "none")
	if err := KeepFailure(dir, errors.New("x")); err != nil {
		t.Error(err)
	}
	if got := text(); !strings.Contains(got, "is not there yet") {
		t.Errorf("status of no folder:\n%s", got)
	}
}
