package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// PackagedEnvoy is where the package ashore-envoy puts it.
const PackagedEnvoy = "/usr/lib/ashore/envoy"

// FindEnvoy returns the program that is run: path when it is set, else "envoy" in PATH, else the one of the package
// ashore-envoy, else .tools/envoy in this folder or one above it, where "make tools" puts it.
// The error is a UsageError that says where was looked and what to do.
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
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find Envoy: %w", err)
	}
	for {
		tool := filepath.Join(dir, ".tools", "envoy")
		if _, err := os.Stat(tool); err == nil {
			if err := trusted(filepath.Dir(tool), tool); err != nil {
				return "", err
			}
			return runnable(tool)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", envoyError("not set, and there is no \"envoy\" in PATH and no .tools/envoy in this folder or above")
		}
		dir = up
	}
}

// trusted says whether programs that nobody named may be run: not those that another user put in the way of somebody who
// starts the agent in some folder.
func trusted(paths ...string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("find Envoy: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o002 != 0 {
			return envoyError("not set, and what is found is not run, because another user can change %s (%v)", path, info.Mode())
		}
	}
	return nil
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
			err = p.Err // the path is said
		}
		return "", envoyError("there is no program %s (%v)", abs, err)
	case info.IsDir() || info.Mode().Perm()&0o111 == 0:
		return "", envoyError("%s is not a program (mode %v)", abs, info.Mode())
	}
	return abs, nil
}

func envoyError(format string, args ...any) error {
	return &UsageError{"envoy.path", fmt.Sprintf(format, args...) +
		": name Envoy's program, such as /usr/local/bin/envoy, or install it in PATH; \"make tools\" in Ashore's work tree fetches one"}
}
