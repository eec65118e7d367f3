package ca

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder of keys that is a link is refused. The text does not advise another state folder, which
// would not help.
func TestFolderLink(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ca")
	if err := os.Symlink(t.TempDir(), path); err != nil {
		t.Fatal(err)
	}
	err := folder(path).open()
	if err == nil || !strings.Contains(err.Error(), "replace it") || strings.Contains(err.Error(), "setting state") {
		t.Errorf("got %v, want that it is to be replaced", err)
	}
}
