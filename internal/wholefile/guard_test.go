package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only a folder that no other user can write to is safe.
func TestGuard(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if err := Guard(dir, "replace it"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]string{
		0o700: "", 0o755: "", 0o770: "can be written by other users", 0o702: "(chmod 700), or replace it",
	} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		err := Guard(dir, "replace it")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mode %v: %v, want %q", mode, err, want)
		}
	}
}

// A folder of another user, or a link to one, is refused: root would trust what that user put
// there.
func TestGuardOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder to another user")
	}
	dir := t.TempDir()
	state, link := filepath.Join(dir, "state"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(state, 0o700), os.Symlink("state", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, link + "/"} {
		want := "state folder " + link + " is a symbolic link to " + state + ": replace it"
		if err := Guard(path, "replace it"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	nowhere := filepath.Join(dir, "nowhere")
	if err := os.Symlink("none", nowhere); err != nil {
		t.Fatal(err)
	}
	err := Guard(nowhere, "replace it")
	if errors.Is(err, fs.ErrNotExist) || err == nil || !strings.Contains(err.Error(), ": remove it, or replace it") {
		t.Errorf("a link to nowhere: %v", err)
	}
	if err := os.Chown(state, 4998, -1); err != nil {
		t.Fatal(err)
	}
	want := "belongs to the user 4998, and this program runs as root: " +
		"if you trust what is in it, run \"chown -R root " + state + "\"; otherwise replace it"
	if err := Guard(state, "replace it"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
