package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
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

	makeLink linkMaker // nil: newLink; tests have others
}

// Agent runs one Envoy. Its Run may be called once.
type Agent struct {
	settings   Settings
	path       string // of Envoy
	bootstrap  []byte
	log        hclog.Logger
	admin      *admin
	process    *process
	supervisor *supervisor
	ready      *readiness

	// What a workload with an identity has more; nil with Dev.
	keeper    *Keeper
	link      link
	presented *presentation
	secrets   *secrets

	vitals *vitals
	cutter *cutter

	leaving atomic.Bool // the identity is removed at the end
}

// New finds Envoy, reads the identity and makes Envoy's bootstrap. Nothing is written or started yet. Without Dev the
// workload must have joined.
func New(c Config) (*Agent, error) {
	path, err := FindEnvoy(c.Settings.Envoy.Path)
	if err != nil {
		return nil, err
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	if c.makeLink == nil {
		c.makeLink = newLink
	}
	a := &Agent{settings: c.Settings, path: path, log: c.Log.Named("agent"), admin: newAdmin(&c.Settings)}
	if err := a.identify(c.Log, c.makeLink); err != nil {
		return nil, err
	}
	if a.bootstrap, err = BootstrapJSON(&a.settings); err != nil {
		return nil, err
	}
	a.process = &process{path: path, args: arguments(&a.settings, a.bootstrapPath()), stdout: c.Stdout, log: c.Log.Named("envoy")}
	a.supervisor = &supervisor{run: a.process.run, ended: make(chan struct{}, 1), log: a.log}
	a.ready = newReadiness(a.admin, a.supervisor, c.Settings.XDS.Addresses, a.log)
	a.ready.metrics = a.serveMetrics
	if a.link != nil {
		a.ready.trouble = func() string { return a.link.LinkState().Trouble }
	}
	return a, nil
}

// identify reads the identity, unless there is to be none.
func (a *Agent) identify(log hclog.Logger, makeLink linkMaker) error {
	s := &a.settings
	if s.Dev {
		return nil
	}
	k, err := NewKeeper(KeeperConfig{Dir: s.State, Addresses: s.XDS.Addresses, Name: s.Workload.Name, Log: log})
	if err != nil {
		return err
	}
	if err := s.adopt(k.Identity(), k.Joined()); err != nil {
		return err
	}
	a.keeper = k
	a.secrets = newSecrets(k, log)
	a.presented = &presentation{keeper: k, certs: a.admin.certs, log: a.log}
	if a.link, err = makeLink(s, k, log); err != nil {
		return err
	}
	a.vitals = newVitals(a.link.ReportHealth)
	a.cutter = newCutter(s, a.link.Revoked(), func() int { return a.process.PID() }, a.log)
	return nil
}

// adopt makes the settings those of an identity.
func (s *Settings) adopt(id *Identity, j Joined) error {
	w := &s.Workload
	if w.Name != j.Workload {
		return &UsageError{"workload.name", fmt.Sprintf("%q is not what the workload joined by, %q; leave it out, or name another state folder than %s", w.Name, j.Workload, s.State)}
	}
	if w.Namespace != id.ID.Namespace {
		return &UsageError{"workload.namespace", fmt.Sprintf("%q is not that of the identity in %s, %s; leave it out, or name another state folder", w.Namespace, s.State, id.ID)}
	}
	if w.ServiceAccount != "" && w.ServiceAccount != id.ID.ServiceAccount {
		return &UsageError{"workload.serviceAccount", fmt.Sprintf("%q is not that of the identity in %s, %s; leave it out", w.ServiceAccount, s.State, id.ID)}
	}
	w.ServiceAccount = id.ID.ServiceAccount
	return nil
}

// bootstrapFile is Envoy's first configuration, in the state folder.
const bootstrapFile = "bootstrap.json"

func (a *Agent) bootstrapPath() string { return filepath.Join(a.settings.State, bootstrapFile) }

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
	ls, err := a.open(ctx)
	if err != nil {
		return err
	}
	if err := keepFile(a.bootstrapPath(), a.bootstrap); err != nil {
		return errors.Join(diskError("start", err), ls.close())
	}
	if err := forgetFailure(a.settings.State); err != nil {
		return errors.Join(diskError("start", err), ls.close())
	}
	a.log.Info("starting envoy", "workload", a.settings.Workload.Name+"."+a.settings.Workload.Namespace, "address", a.settings.Workload.Addresses[0],
		"control_plane", a.settings.XDS.Addresses, "envoy", a.path, "bootstrap", a.bootstrapPath())
	if a.keeper != nil {
		id := a.keeper.Identity()
		a.log.Info("identity", "id", id.ID, "serial", id.Serial(), "ends", id.Leaf().NotAfter)
	}
	if a.settings.Workload.Interception == "redirect" {
		a.log.Info("traffic is expected to be redirected by rules of your own: this agent sets none")
	}
	err = a.runParts(ctx, ls)
	if a.leaving.Load() {
		err = errors.Join(err, forget(a.settings.State))
	}
	return err
}

// listeners are what an agent serves on.
type listeners struct{ status, control, xds net.Listener }

// close closes those that are open.
func (l *listeners) close() error {
	var errs []error
	for _, one := range []net.Listener{l.status, l.control, l.xds} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// open opens them. The caller holds the lock of the state folder.
func (a *Agent) open(ctx context.Context) (*listeners, error) {
	ls, err := &listeners{}, error(nil)
	if ls.status, err = a.claimPorts(ctx); err != nil {
		return nil, err
	}
	if ls.control, err = listenUnix(a.settings.agentSocket()); err != nil {
		return nil, errors.Join(diskError("start", err), ls.close())
	}
	if a.keeper == nil {
		return ls, nil
	}
	if err := a.keeper.Reload(); err != nil { // it was read before the lock was held
		return nil, errors.Join(err, ls.close())
	}
	if ls.xds, err = listenUnix(a.settings.xdsSocket()); err != nil {
		return nil, errors.Join(diskError("start", err), ls.close())
	}
	return ls, nil
}

// runParts runs everything until ctx has ended, or an operator has the workload leave, and Envoy has drained.
func (a *Agent) runParts(ctx context.Context, ls *listeners) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	parts := []task.Part{
		{Name: "envoy", Run: func(c context.Context) error {
			defer end() // it returns early when Envoy ends within its drain
			return a.supervisor.Run(c, ctx.Done())
		}},
		{Name: "status port", Run: func(c context.Context) error { return a.ready.Run(c, ls.status) }},
		{Name: "readiness", Run: a.watchReadiness},
		{Name: "drain", Run: func(c context.Context) error {
			select {
			case <-ctx.Done():
				a.drain(c)
				end()
			case <-c.Done():
			}
			return nil
		}},
	}
	control := &control{report: a.Report, log: a.log, leave: func() {
		a.leaving.Store(a.keeper != nil)
		leave()
	}}
	parts = append(parts, task.Part{Name: "agent socket", Run: func(c context.Context) error { return control.Run(c, ls.control) }})
	return task.Run(alive, append(parts, a.identityParts(ls)...)...)
}

// identityParts are those of a workload with an identity.
func (a *Agent) identityParts(ls *listeners) []task.Part {
	if a.keeper == nil {
		return nil
	}
	server := newLocalServer(a.secrets, a.link)
	prober := newProber(&a.settings, a.vitals.application, a.log)
	return []task.Part{
		{Name: "identity", Run: a.keeper.Run},
		{Name: "presented certificate", Run: a.presented.Run},
		{Name: "control plane", Run: a.link.Run},
		{Name: "revoked workloads", Run: a.cutter.Run},
		{Name: "xDS socket", Run: func(c context.Context) error { return serveLocal(c, server, ls.xds) }},
		{Name: "probe", Run: prober.Run},
	}
}

// leaveEndpoints makes others send no more, and waits until they have heard of it.
func (a *Agent) leaveEndpoints(ctx context.Context) {
	if a.link == nil || a.settings.Workload.Group == "" {
		return
	}
	a.vitals.end()
	a.log.Info("leaving the endpoints", "wait", a.settings.Drain.Leave)
	select {
	case <-ctx.Done():
	case <-time.After(a.settings.Drain.Leave):
	}
}

// drain leaves the endpoints, asks all connections to go and waits for them.
func (a *Agent) drain(ctx context.Context) {
	a.ready.drain()
	a.leaveEndpoints(ctx)
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
	told, row := "", 0
	for n := 1; ; n++ {
		wait := readinessLater
		err := a.ready.check(ctx)
		if row++; err == nil {
			row = 0
		}
		a.tellReadiness(err, row)
		if err != nil {
			wait = readinessSoon
			if text := err.Error(); n%25 == 0 && text != told { // each 5 s at most
				told = text
				a.log.Info("envoy is not ready yet", "reason", text)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.supervisor.ended:
		case <-time.After(wait):
		}
	}
}

// unreadyAfter is how many looks in a row at an Envoy that is not ready make it one: a single question may get no answer in time,
// and an Envoy that ended may be back before others have heard of it.
const unreadyAfter = 3

// proxyUnready begins the reason why a workload is not among the endpoints when that is its Envoy.
const proxyUnready = "the proxy is not ready: "

// tellReadiness lets the control plane know, when there is one that wants to. row is how many looks in a row gave an error.
func (a *Agent) tellReadiness(err error, row int) {
	switch {
	case a.vitals == nil:
	case err == nil:
		a.vitals.envoy("")
	case row >= unreadyAfter:
		a.vitals.envoy(proxyUnready + err.Error())
	}
}

// claimPorts opens the status port and makes sure that the ports that Envoy will open are free: Envoy's own
// message would name neither the setting nor what to do.
func (a *Agent) claimPorts(ctx context.Context) (net.Listener, error) {
	var status net.Listener
	for _, o := range a.settings.Ports.openPorts() {
		l, err := listenPatiently(ctx, a.settings.at(o.port))
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

// portPatience is how long an address that is in use is waited for: the Envoy of an agent that was killed ends a moment after it.
const portPatience = 2 * time.Second

// listenPatiently listens at an address as soon as it is free, within portPatience.
func listenPatiently(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	for end := time.Now().Add(portPatience); ; {
		l, err := c.Listen(ctx, "tcp", address)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
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
