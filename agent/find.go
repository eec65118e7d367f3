package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// PackagedEnvoy is where the package ashore-envoy puts it.
const PackagedEnvoy = "/usr/lib/ashore/envoy"

// find returns the program that is run: that of the units, or what FindEnvoy returns.
func (e *Envoy) find() (string, error) {
	if e.Unit != "" {
		return cmp.Or(e.program, PackagedEnvoy), nil
	}
	return FindEnvoy(e.Path)
}

// FindEnvoy returns the program that is run: path when it is set, else "envoy" in PATH, else the
// one of the package ashore-envoy. The error is a UsageError that says what to do.
func FindEnvoy(path string) (string, error) {
	if path != "" {
		return runnable(path)
	}
	if found, err := exec.LookPath("envoy"); err == nil {
		return filepath.Abs(found)
	}
	if _, err := os.Stat(PackagedEnvoy); err == nil {
		return runnable(PackagedEnvoy)
	}
	return "", envoyError("not set, and there is no \"envoy\" in PATH and no package ashore-envoy")
}

// runnable is path as an absolute one, when it is a file that may be run.
func runnable(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("envoy.path %s: %w", path, err)
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err // the path is in the text
		}
		return "", envoyError("there is no program %s (%v)", abs, err)
	case info.IsDir() || info.Mode().Perm()&0o111 == 0:
		return "", envoyError("%s is not a program (mode %v)", abs, info.Mode())
	}
	return abs, nil
}

func envoyError(format string, args ...any) error {
	return &UsageError{"envoy.path", fmt.Sprintf(format, args...) +
		": name Envoy's program, such as /usr/local/bin/envoy, or install it in PATH; in Ashore's work tree \"make tools\" fetches .tools/envoy"}
}
