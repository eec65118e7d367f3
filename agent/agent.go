package agent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/agent/dns"
	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/agent/probe"
	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/internal/task"
)

// Config is the configuration of an Agent.
type Config struct {
	// Settings are complete: Complete accepted them.
	Settings Settings
	Log      hclog.Logger
	// Stdout receives the access logs of an Envoy that is a child, and Stderr its log. Nil: they are
	// dropped.
	Stdout, Stderr io.Writer
	// Sockets are the DNS sockets that the service manager opened.
	Sockets []*os.File
	// Notify sends a state to the service manager, in the form of sd_notify(3). Nil: there is none.
	Notify func(state string)
	// Watchdog is how often WATCHDOG=1 is sent. Zero: never.
	Watchdog time.Duration

	manager envoy.Manager // nil: systemd; tests have others
}

// Agent runs one Envoy. Its Run may be called once.
type Agent struct {
	settings  Settings
	sockets   []*os.File
	path      string // of Envoy
	bootstrap []byte
	log       hclog.Logger
	admin     *envoy.Admin
	envoy     envoy.Runner
	ready     *readiness
	quit      func()        // drains and ends Envoy and this agent; set by Run
	scrapes   chan struct{} // capacity maxScrapes
	notifier  notifier

	// Set for workloads with an identity; nil with Dev.
	certs   *CertManager
	secrets *secrets

	relay  *relay.Relay
	config atomic.Pointer[meshconfig.ProxyConfig] // of this workload; nil until there is one
	names  *dns.Table                             // of the mesh; nil until there is one
	health *healthReporter
	prober *probe.Prober
	dns    *dns.Server // nil: closed; set by Run

	leaving atomic.Bool // delete the identity at the end
	ending  atomic.Bool // end Envoy too if it is a unit
}

// New finds Envoy, reads the identity and makes Envoy's bootstrap. It writes and starts nothing.
// Without Dev the workload must have joined.
func New(c Config) (*Agent, error) {
	path, err := c.Settings.Envoy.Program(context.Background())
	if err != nil {
		return nil, err
	}
	a := &Agent{settings: c.Settings, sockets: c.Sockets, path: path, log: c.Log.Named("agent"),
		admin:   envoy.NewAdmin(c.Settings.adminSocket()),
		scrapes: make(chan struct{}, maxScrapes), notifier: notifier{notify: c.Notify, watchdog: c.Watchdog}}
	a.health = &healthReporter{report: a.reportHealth, proxy: errStarting}
	a.prober = a.newProber()
	if err := a.identify(c.Log); err != nil {
		return nil, err
	}
	if err := a.connect(c.Log); err != nil {
		return nil, err
	}
	a.settings.Envoy.adopt(a.config.Load())
	if a.bootstrap, err = Bootstrap(&a.settings); err != nil {
		return nil, err
	}
	if a.envoy, err = a.newRunner(c); err != nil {
		return nil, err
	}
	a.ready = newReadiness(a.admin, a.envoy, func() string { return a.relay.Status().Problem }, a.log)
	return a, nil
}

// newRunner returns what runs Envoy.
func (a *Agent) newRunner(c Config) (envoy.Runner, error) {
	s, o := &a.settings, a.settings.options()
	if !s.Envoy.units {
		bootstrap := filepath.Join(s.State, bootstrapFile)
		return envoy.NewChild(a.path, bootstrap, o, cmp.Or(c.Stdout, io.Discard), cmp.Or(c.Stderr, io.Discard),
			a.log), nil
	}
	if c.manager == nil {
		c.manager = &envoy.Systemd{}
	}
	return envoy.NewUnits(c.manager, envoy.UnitsConfig{Options: o, Program: a.path, Bootstrap: a.bootstrap,
		Workload: s.Envoy.workload, Folder: s.unitFolder(), Sockets: s.envoyFolder(),
		ParentShutdown: s.Envoy.ParentShutdown}, a.admin, a.log)
}

// identify reads the identity, unless the agent runs with Dev.
func (a *Agent) identify(log hclog.Logger) error {
	s := &a.settings
	if s.Dev {
		return nil
	}
	k, err := NewCertManager(CertManagerConfig{Dir: s.State, Addresses: s.XDS.Addresses, Name: s.Workload.Name,
		TokenFile: s.XDS.TokenFile, Cluster: s.Workload.Cluster, Log: log})
	if err != nil {
		return err
	}
	if err := s.applyIdentity(k.Identity(), k.Joined()); err != nil {
		return err
	}
	a.certs = k
	a.secrets = newSecrets(k, log)
	return nil
}

// applyIdentity checks the settings against the identity and takes the service account and the
// names for telemetry from it.
func (s *Settings) applyIdentity(id *Identity, j Joined) error {
	w := &s.Workload
	check := &checker{}
	const remedy = "leave it out, or name another state folder"
	check.want(w.Name == j.Workload, "workload.name", "%q is not what the workload in %s joined by, %q; %s",
		w.Name, s.State, j.Workload, remedy)
	check.want(w.Namespace == id.ID.Namespace, "workload.namespace", "%q is not that of the identity in %s, %s; %s",
		w.Namespace, s.State, id.ID, remedy)
	w.serviceAccount = id.ID.ServiceAccount
	w.certName = id.peerName()
	return errors.Join(check.errs...)
}

// Run starts Envoy, or continues with one that runs as a unit, and keeps it running. When ctx ends,
// Run drains and ends Envoy and returns nil; that takes up to Drain.Maximum and a few seconds. An
// Envoy that is a unit ends only if the machine shuts down. Errors name the setting.
func (a *Agent) Run(ctx context.Context) (err error) {
	lock, err := lockState(a.settings.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	resumed, err := a.envoy.Resume(ctx)
	if err != nil {
		return err
	}
	if err := a.makeFolders(); err != nil {
		return diskError("start", err)
	}
	if err := a.checkPorts(ctx, resumed); err != nil {
		return err
	}
	if a.settings.Ports.DNS > 0 {
		if a.dns, err = a.listenDNS(ctx); err != nil {
			return err
		}
	}
	if resumed {
		a.health.resumed, a.health.proxy, a.ready.result = true, nil, nil
	}
	a.log.Info("starting", "workload", a.settings.Workload.Name+"."+a.settings.Workload.Namespace,
		"address", a.settings.Workload.Addresses[0],
		"control_plane", a.settings.XDS.Addresses, "envoy", a.path)
	if a.certs != nil {
		id := a.certs.Identity()
		a.log.Info("identity", "id", id.ID, "serial", id.Serial(), "ends", id.Leaf().NotAfter)
	}
	err = a.runParts(ctx)
	if a.leaving.Load() {
		err = errors.Join(err, forget(a.settings.State))
	}
	return err
}

// makeFolders makes the folders of a unit, or writes the bootstrap of a child.
func (a *Agent) makeFolders() error {
	if !a.settings.Envoy.units {
		return keepFile(filepath.Join(a.settings.State, bootstrapFile), a.bootstrap)
	}
	for dir, mode := range map[string]fs.FileMode{a.settings.runtime(): 0o750, a.settings.envoyFolder(): 0o770} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
		if err := os.Chmod(dir, mode); err != nil { // despite the umask
			return err
		}
	}
	return nil
}

// runParts runs all parts. Serving ends when ctx ends or an operator requests it. Then Envoy drains,
// and the other parts run until it has.
func (a *Agent) runParts(ctx context.Context) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	a.quit = func() {
		a.ending.Store(true)
		stop()
	}
	control := &control{report: a.Report, admin: a.admin, log: a.log, leave: func() {
		a.leaving.Store(a.certs != nil)
		a.quit()
	}}
	server := newLocalServer()
	a.relay.Register(server)
	parts := []task.Part{
		{Name: "envoy", Run: func(c context.Context) error {
			defer end() // it returns early if Envoy ends during its drain
			return a.envoy.Run(c, serving)
		}},
		{Name: "drain", Run: func(c context.Context) error {
			select {
			case <-serving.Done():
				a.finish(c)
				end()
			case <-c.Done():
			}
			return nil
		}},
		{Name: "readiness", Run: a.watchReadiness},
		{Name: "probe", Run: a.prober.Run},
		{Name: "control plane", Run: a.relay.Run},
		{Name: "status port", Run: a.serveStatus},
		{Name: "agent socket", Run: func(c context.Context) error {
			return serveUnix(c, filepath.Join(a.settings.State, agentSocket), 0o600, control.Run)
		}},
		{Name: "xDS socket", Run: func(c context.Context) error {
			return serveUnix(c, a.settings.xdsSocket(), a.settings.socketMode(), func(c context.Context, l net.Listener) error {
				return serveLocal(c, server, l)
			})
		}},
	}
	if a.certs != nil {
		a.secrets.Register(server)
		parts = append(parts, task.Part{Name: "identity", Run: a.certs.Run})
	}
	if a.dns != nil {
		parts = append(parts, task.Part{Name: "DNS", Run: a.dns.Run})
	}
	return task.Run(alive, parts...)
}

// finish drains and ends Envoy, or leaves it running for the next agent.
func (a *Agent) finish(ctx context.Context) {
	drain := a.drainSettings()
	a.notifier.stopping(drain.leave() + drain.Maximum + stopMargin)
	if !a.ending.Load() && a.envoy.Stays(ctx) {
		a.log.Info("envoy goes on without this agent", "unit", a.envoy.State().Unit)
		return
	}
	a.drain(ctx)
	if !a.ending.Load() {
		return // a child ends with Run, and systemd stops its units at the machine's shutdown
	}
	if err := a.envoy.Stop(ctx); err != nil && ctx.Err() == nil {
		a.log.Error("envoy was not stopped", "error", err)
	}
}

// stopMargin is the time for the end beyond the drain: Envoy's own end, and open requests.
const stopMargin = envoy.KillAfter + 5*time.Second

// leaveEndpoints removes the workload from the endpoints, and gives callers and load balancers time
// to notice.
func (a *Agent) leaveEndpoints(ctx context.Context) {
	a.health.end()
	wait := a.drainSettings().leave()
	a.log.Info("leaving the endpoints", "wait", wait)
	task.Sleep(ctx, wait)
}

// drain leaves the endpoints, and waits until clients have closed their connections.
func (a *Agent) drain(ctx context.Context) {
	a.leaveEndpoints(ctx)
	most := a.drainSettings().Maximum
	a.log.Info("draining envoy", "at_most", most)
	start := time.Now()
	left, err := a.admin.Drain(ctx, most)
	waited := time.Since(start).Round(time.Millisecond)
	switch {
	case err != nil:
		a.log.Warn("envoy cannot be drained and is ended at once", "error", err)
	case left > 0:
		a.log.Warn("connections were still open at the end of the drain", "connections", left, "waited", waited)
	default:
		a.log.Info("envoy has drained", "waited", waited)
	}
}
