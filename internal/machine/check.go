package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// startTime is how long a program may take to print its version.
const startTime = 20 * time.Second

// Envoy's supported minor releases: generated configuration was tried with them, and each takes
// over from each other by hot restart.
const oldestEnvoy, newestEnvoy = 39, 40

// CheckEnvoy returns why the Envoy binary does not start on this machine, or that its version is
// not supported.
func CheckEnvoy(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	text := strings.TrimSpace(string(out))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Also when the program is there and its loader is not: it is for another libc or
		// architecture.
		if _, statErr := os.Stat(path); statErr == nil {
			return fmt.Errorf("envoy %s cannot run here: it needs glibc for this architecture; install the package ashore-envoy for it", path)
		}
		return fmt.Errorf("envoy is missing: there is no %s; install the package ashore-envoy", path)
	case err != nil && strings.Contains(text, "GLIBC"):
		return fmt.Errorf("envoy %s needs a newer glibc than this machine has: %s; use a newer release of the distribution", path, text)
	case err != nil:
		return fmt.Errorf("envoy %s does not start: install the package ashore-envoy for this machine: %w %s", path,
			err, text)
	}
	return checkVersion(path, text)
}

// version is in "envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL".
var version = regexp.MustCompile(`version: [^/\s]*/((\d+)\.(\d+)\.\d+[^/\s]*)/`)

func checkVersion(path, text string) error {
	found := version.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("%s is not Envoy: its --version says %.200q; install the package ashore-envoy", path, text)
	}
	if minor, err := strconv.Atoi(found[3]); err != nil || found[2] != "1" || minor < oldestEnvoy ||
		minor > newestEnvoy {
		return fmt.Errorf("envoy %s is version %s, supported are 1.%d to 1.%d: install the package ashore-envoy",
			path, found[1], oldestEnvoy, newestEnvoy)
	}
	return nil
}

// CheckResolver returns what is wrong with the settings of the resolver, usually /etc/resolv.conf.
// A missing file is correct: the resolver then uses this machine.
func CheckResolver(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	target, linkErr := os.Readlink(path)
	if linkErr != nil {
		return nil
	}
	return fmt.Errorf("%s is a link to %s, which does not exist: names cannot be resolved; start what writes that file "+
		"(for systemd-resolved: systemctl enable --now systemd-resolved), or replace the link with a file that names a server", path, target)
}
