package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/task"
)

// Config is what an Agent is made of.
type Config struct {
	// Settings have been through Complete.
	Settings Settings
	// Log takes the agent's lines and, below the name "envoy", Envoy's.
	Log hclog.Logger
	// Stdout takes what Envoy writes to its standard output: access logs. Nil: dropped.
	Stdout io.Writer
}

// Agent runs one Envoy. Its Run may be called once.
type Agent struct {
	settings   Settings
	path       string // of Envoy
	bootstrap  []byte
	log        hclog.Logger
	admin      *admin
	supervisor *supervisor
	ready      *readiness
}

// New finds Envoy and makes its bootstrap. Nothing is written or started yet.
func New(c Config) (*Agent, error) {
	path, err := FindEnvoy(c.Settings.Envoy.Path)
	if err != nil {
		return nil, err
	}
	bootstrap, err := BootstrapJSON(&c.Settings)
	if err != nil {
		return nil, err
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	a := &Agent{settings: c.Settings, path: path, bootstrap: bootstrap, log: c.Log.Named("agent"), admin: newAdmin(&c.Settings)}
	p := &process{path: path, args: arguments(&a.settings, a.bootstrapPath()), stdout: c.Stdout, log: c.Log.Named("envoy")}
	a.supervisor = &supervisor{run: p.run, log: a.log}
	a.ready = newReadiness(a.admin, a.supervisor, c.Settings.XDS.Addresses, a.log)
	return a, nil
}

func (a *Agent) bootstrapPath() string { return filepath.Join(a.settings.State, "bootstrap.json") }

// Run starts Envoy and keeps it running. When ctx ends, Envoy is drained and ended, and Run returns nil; that
// takes up to the settings' Drain.Maximum and a few seconds. Errors name the setting that they are about.
func (a *Agent) Run(ctx context.Context) (err error) {
	lock, err := lockState(a.settings.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := raiseFileLimit(); err != nil {
		a.log.Warn("Envoy may run out of files", "error", err)
	}
	listener, err := a.claimPorts(ctx)
	if err != nil {
		return err
	}
	if err := writeFile(a.bootstrapPath(), a.bootstrap); err != nil {
		return errors.Join(err, listener.Close())
	}
	a.log.Info("starting envoy", "workload", a.settings.Workload.Name+"."+a.settings.Workload.Namespace, "address", a.settings.Workload.Addresses[0],
		"control_plane", a.settings.XDS.Addresses, "envoy", a.path, "bootstrap", a.bootstrapPath())
	if a.settings.Workload.Interception == "redirect" {
		a.log.Info("traffic is expected to be redirected by rules of your own: this agent sets none")
	}
	return a.runParts(ctx, listener)
}

// runParts runs everything until ctx has ended and Envoy has drained.
func (a *Agent) runParts(ctx context.Context, listener net.Listener) error {
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	return task.Run(alive,
		task.Part{Name: "envoy", Run: func(c context.Context) error {
			defer end() // it returns early when Envoy ends within its drain
			return a.supervisor.Run(c, ctx.Done())
		}},
		task.Part{Name: "status port", Run: func(c context.Context) error { return a.ready.Run(c, listener) }},
		task.Part{Name: "readiness", Run: a.watchReadiness},
		task.Part{Name: "drain", Run: func(c context.Context) error {
			select {
			case <-ctx.Done():
				a.drain(c)
				end()
			case <-c.Done():
			}
			return nil
		}},
	)
}

// drain asks all connections to go and waits for them.
func (a *Agent) drain(ctx context.Context) {
	a.ready.drain()
	if err := a.admin.drain(ctx); err != nil {
		a.log.Warn("envoy cannot be drained and is ended at once", "error", err)
		return
	}
	a.log.Info("draining envoy", "at_least", a.settings.Drain.Minimum, "at_most", a.settings.Drain.Maximum)
	start := time.Now()
	if left := a.settings.Drain.settle(ctx, a.admin.connections); left > 0 {
		a.log.Warn("connections were still open at the end of the drain", "connections", left, "waited", time.Since(start).Round(time.Millisecond))
		return
	}
	a.log.Info("envoy has drained", "waited", time.Since(start).Round(time.Millisecond))
}

// The times between two looks at Envoy's readiness, before it is ready and after.
const (
	readinessSoon  = 200 * time.Millisecond
	readinessLater = 10 * time.Second
)

// watchReadiness logs when Envoy becomes ready or stops being so, and what it waits for.
func (a *Agent) watchReadiness(ctx context.Context) error {
	told := ""
	for n := 1; ; n++ {
		wait := readinessLater
		if err := a.ready.check(ctx); err != nil {
			wait = readinessSoon
			if text := err.Error(); n%25 == 0 && text != told { // each 5 s at most
				told = text
				a.log.Info("envoy is not ready yet", "reason", text)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// claimPorts opens the status port and makes sure that the ports that Envoy will open are free: Envoy's own
// message would name neither the setting nor what to do.
func (a *Agent) claimPorts(ctx context.Context) (net.Listener, error) {
	var status net.Listener
	for _, o := range a.settings.Ports.openPorts() {
		var c net.ListenConfig
		l, err := c.Listen(ctx, "tcp", a.settings.at(o.port))
		if err != nil {
			if status != nil {
				err = errors.Join(err, status.Close())
			}
			return nil, a.portError(o, err)
		}
		if o.port == a.settings.Ports.Status {
			status = l
			continue
		}
		if err := l.Close(); err != nil {
			return nil, errors.Join(err, status.Close())
		}
	}
	return status, nil
}

func (a *Agent) portError(o openPort, err error) error {
	at := a.settings.at(o.port)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use (%s): another program, or another workload with this address, has it; "+
			"end it (\"ss -ltnp\" shows it), set another port, or give each workload its own address", at, o.names())
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine (setting workload.addresses, or --address): %w", a.settings.Workload.Addresses[0], err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may not be opened by this user (%s): set a port above 1023: %w", at, o.names(), err)
	}
	return fmt.Errorf("open %s (%s): %w", at, o.names(), err)
}
