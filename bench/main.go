// Command bench measures ashored with a fleet of simulated Envoys. It compares ashored with the
// floor: the least that any control plane can cost for the same bytes, on the same machine, in the
// same run.
//
//	bench                     at 200 and 1000 proxies, and the table of ratios
//	bench -tls                the same by mutual TLS, and with policies
//	bench -joins 1000         how long so many workloads need to join
//	bench -kubernetes         a large cluster of Kubernetes
//	bench -all                everything
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	debug.SetGCPercent(400) // the fleet must stay far cheaper than the server
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage):
		say("bench: %v", err)
		os.Exit(2)
	}
	say("bench: %v", err)
	os.Exit(1)
}

// run measures what the arguments say. The floor is a process of its own, started by this one.
func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == floorCommand {
		return floor(ctx, args[1])
	}
	return measureAll(ctx, args)
}

// mesh is a mesh that is measured, and where it is.
type mesh struct {
	fleet.Shape
	Dir string // of the configuration files
	// AuthorityDir is the folder of the authority that signs for it, as the setting ca.plugged has
	// it. Empty: plaintext.
	AuthorityDir string
	// Kubeconfig is how to reach the cluster that the mesh is. Empty: it is the files in Dir.
	Kubeconfig string
}

// authority reads the authority; nil without one.
func (m mesh) authority(ctx context.Context) (*fleet.Authority, error) {
	if m.AuthorityDir == "" {
		return nil, nil
	}
	return fleet.OpenAuthority(ctx, m.AuthorityDir)
}

// floorCommand runs a floor, with floorConfig as JSON.
const floorCommand = "floor"

type floorConfig struct {
	Mesh   mesh
	Record string // address of the server to record
	Listen string
}

// floor records a server, and then serves what it recorded until ctx ends.
func floor(ctx context.Context, config string) error {
	var c floorConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	a, err := c.Mesh.authority(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rec, err := fleet.Record(within, c.Record, c.Mesh.Shape, a)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	f, err := fleet.NewFloor(rec, a)
	if err != nil {
		return err
	}
	return f.Run(ctx, l, c.Mesh.Dir)
}

// say tells how far it is. There is nowhere to tell that this failed.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }
