package agent

import (
	"cmp"
	"context"
	"os/exec"
	"path/filepath"

	"github.com/ashore-mesh/ashore/internal/machine"
)

// Program returns the program that is run, which starts and is supported: PackagedEnvoy for units;
// else Path, "envoy" in PATH, or PackagedEnvoy. The error is a UsageError that says what to do.
func (e *Envoy) Program(ctx context.Context) (string, error) {
	path := e.Path
	switch {
	case e.units:
		path = cmp.Or(e.program, PackagedEnvoy)
	case path == "":
		path = PackagedEnvoy
		if found, err := exec.LookPath("envoy"); err == nil {
			path = found
		}
	}
	path, err := filepath.Abs(path)
	if err == nil {
		err = machine.CheckEnvoy(ctx, path)
	}
	if err != nil {
		return "", &UsageError{"envoy.path", err.Error() + ", or name Envoy's program (--envoy)"}
	}
	return path, nil
}
