package hostile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// Root does not run on a folder that another user prepared: there may be an authority in it whose
// key that user has.
func TestStateFolderOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder to another user")
	}
	dir := t.TempDir()
	files, others, link, own := filepath.Join(dir, "config"), filepath.Join(dir, "others"), filepath.Join(dir,
		"link"), filepath.Join(dir, "own")
	err := errors.Join(os.Mkdir(files, 0o700), os.Mkdir(others, 0o700), os.Mkdir(own, 0o700),
		os.Chown(others, 4998, 4998), os.Symlink(own, link))
	if err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]string{
		others:     "state folder " + others + " belongs to the user 4998, and this program runs as root: if you trust what is in it, run \"chown -R root " + others + "\"",
		link:       "state folder " + link + " is a symbolic link to " + own,
		link + "/": "state folder " + link + " is a symbolic link to " + own,
	} {
		for program, args := range map[string][]string{
			"ashored":      {"--dev", "--files", files, "--set", "xds.plaintextAddress=127.0.0.1:0", "--set", "metrics.address=127.0.0.2:0", "--set", "admin.socket=" + filepath.Join(dir, "admin.sock"), "--set", "state=" + state},
			"ashore-agent": {"run", "--dev", "--xds", "127.0.0.1:1", "--namespace", "shop", "--name", "web", "--address", "127.0.0.1", "--state", state, "--envoy", testenvoy.Path(t)},
		} {
			out, code, err := harness.Command(program, args...)
			if err != nil || code == 0 || !strings.Contains(out, want) {
				t.Errorf("%s on %s: exit code %d, %v, want %q:\n%s", program, state, code, err, want, out)
			}
		}
	}
	for _, folder := range []string{others, own} {
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v; want it untouched", folder, left, err)
		}
	}
}
