package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/wholefile"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/registry/vip"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/gen"
)

// program is every part, connected.
type program struct {
	parts []task.Part
	close []func() error // in order of opening
}

// serve builds every part and runs them until ctx ends or one fails; again is how the settings are
// read anew.
func serve(ctx context.Context, s settings, again anew, log hclog.Logger) error {
	s.Memory.apply()
	for _, w := range s.warnings {
		log.Warn("setting", "problem", w.String())
	}
	if s.XDS.PlaintextAddress != "" && !loopback(s.XDS.PlaintextAddress) {
		log.Warn("xDS without TLS is open to other machines: whoever reaches it reads the mesh's configuration, and in development registers workloads", "address", s.XDS.PlaintextAddress, "development", s.dev)
	}
	p, err := wire(ctx, s, again, log)
	if err != nil {
		return errors.Join(err, p.end())
	}
	log.Info("serving", "version", build.Read().Version, "xds", s.XDS.Address, "plaintext_xds", s.XDS.PlaintextAddress,
		"metrics", s.Metrics.Address, "admin", s.Admin.Socket, "sources", sourceNames(s.sources), "state", s.State)
	if err := errors.Join(task.Run(ctx, p.parts...), p.end()); err != nil {
		return err
	}
	log.Info("ended")
	return nil
}

// end closes what was opened, the last first.
func (p *program) end() error {
	var errs []error
	for i := len(p.close) - 1; i >= 0; i-- {
		errs = append(errs, p.close[i]())
	}
	return errors.Join(errs...)
}

func (p *program) run(name string, f func(context.Context) error) {
	p.parts = append(p.parts, task.Part{Name: name, Run: f})
}

// doors are what a program opens before it starts: what can be in use or broken shows at once.
type doors struct {
	secure, plain net.Listener // of xDS; nil: not served
	metrics       net.Listener
	admin         net.Listener
	home          *bolt.Store // in the state folder
	store         meshStore   // what is written to the mesh
	audit         *audit.Log
	registry      *prometheus.Registry
}

// open opens the state folder and the addresses. What is open is closed with the program. The store
// comes first: of two programs with one state folder the second is told which process holds it.
func (p *program) open(s settings, registry *prometheus.Registry, log hclog.Logger) (doors, error) {
	d := doors{registry: registry}
	if err := p.openState(s, &d, log); err != nil {
		return d, err
	}
	return d, p.listen(s, &d)
}

// openState opens the store and the audit log in the state folder, and makes them when they are not
// there.
func (p *program) openState(s settings, d *doors, log hclog.Logger) error {
	check, err := checkCommand()
	if err != nil {
		return err
	}
	err = wholefile.Guard(s.State, "set another folder (setting state, or --state)")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if d.home, err = bolt.New(bolt.Config{Dir: s.State, CheckCommand: check, Lost: s.Store.lost(),
		Log: log.Named("store")}); err != nil {
		return fmt.Errorf("store (setting state, or --state in development): %w", err)
	}
	p.close = append(p.close, d.home.Close)
	if err := wholefile.Clean(s.State); err != nil {
		return fmt.Errorf("state folder (setting state, or --state in development): %w", err)
	}
	if d.audit, err = openAudit(s, d.registry, log); err != nil {
		return err
	}
	p.close = append(p.close, d.audit.Close)
	return nil
}

// auditProblems are what keeps events out of the audit log.
func (d *doors) auditProblems() (out []feed.Problem) {
	for _, text := range d.audit.Problems() {
		out = append(out, feed.Problem{Severity: feed.Error, Source: "audit log", Text: text})
	}
	return out
}

// openAudit opens the audit log.
func openAudit(s settings, registry *prometheus.Registry, log hclog.Logger) (*audit.Log, error) {
	size, err := parseBytes(s.Audit.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("setting audit.maxSize: %w", err)
	}
	l, err := audit.Open(audit.Config{Path: filepath.Join(s.State, "audit.jsonl"), MaxSize: size, Keep: s.Audit.Keep,
		Log: log.Named("audit"), Registerer: registry})
	if err != nil {
		return nil, fmt.Errorf("%w (in the state folder, setting state)", err)
	}
	return l, nil
}

// listen opens the addresses.
func (p *program) listen(s settings, d *doors) error {
	for _, door := range []struct {
		at                     *net.Listener
		address, setting, flag string
	}{
		{&d.secure, s.XDS.Address, "xds.address", "xds-tls-address"},
		{&d.plain, s.XDS.PlaintextAddress, "xds.plaintextAddress", "xds-address"},
		{&d.metrics, s.Metrics.Address, "metrics.address", "metrics-address"},
	} {
		if door.address == "" {
			continue
		}
		l, err := listen(door.address, door.setting, door.flag)
		if err != nil {
			return err
		}
		*door.at = l
		p.closing(l)
	}
	l, err := admin.Listen(s.Admin.Socket, s.access.Others())
	if err != nil {
		return fmt.Errorf("%w (setting admin.socket, or --admin-socket in development)", err)
	}
	d.admin = l
	p.closing(l)
	return nil
}

// closing closes l with the program, unless who serves it has done so.
func (p *program) closing(l net.Listener) {
	p.close = append(p.close, func() error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
}

// wire opens what the settings name and connects the parts; again is how the settings are read
// anew. With an error, what it returns is to be ended all the same.
func wire(ctx context.Context, s settings, again anew, log hclog.Logger) (*program, error) {
	p := &program{}
	generator := gen.New()
	report := reporter(log.Named("analysis"))
	back := &backend{started: time.Now(), settings: s.warnings, refused: generator.Refused}
	back.analysis = analyze.NewBackground(func(appeared,
		gone []analyze.Finding) {
		report(analyze.Problems(appeared), analyze.Problems(gone))
	})
	d, err := p.open(s, newRegistry(back.summary), log)
	if err != nil {
		return p, err
	}
	if d.store, err = p.openShared(ctx, s, d, back, log.Named("store")); err != nil {
		return p, err
	}
	vips := vip.New(vip.Config{Records: d.store.Records(), Log: log.Named("vip")})
	state, saved := openSaved(ctx, d.home, log.Named("saved state"))
	maker := newSourceMaker(d.store, savedSources(saved), log)
	back.waited = maker.waited
	back.more = append(back.more, maker.exposed)
	sources, take, err := maker.make(s.sources)
	if err != nil {
		return p, err
	}
	take()
	id, err := d.identity(ctx, s, back, log.Named("ca"))
	if err != nil {
		return p, err
	}
	workloads, err := d.workloads(ctx, s, id, back, log.Named("workloads"))
	if err != nil {
		return p, err
	}
	exported := newMCPPublisher(s, log.Named("mcp"))
	server, err := xds.New(xds.Config{Generator: generator, Objects: exported.objects(), Log: log,
		Registerer: d.registry, Verify: id.verify, Workload: ca.WorkloadName, Revoked: id.revoked, Joined: id.joined, Runtime: workloads,
		RegisterAnybody: s.dev, WorkloadStreams: s.XDS.WorkloadConnections, WorkloadBytes: workloadLimit(workloadBytes,
			s.XDS.WorkloadConnections), Audit: d.audit.Record})
	if err != nil {
		return p, err
	}
	if exported != nil {
		exported.server.Store(server)
	}
	out := newExports(s.mesh, log.Named("export"))
	if err := out.arrange(s.sources); err != nil {
		return p, err
	}
	keys := newKeySource(s, log.Named("jwks"))
	deriver := entry.New(workloads)
	assembler := push.NewAssembler(push.AssemblerConfig{
		Sources:   sources,
		Saved:     saved,
		Save:      state.save,
		Join:      registry.JoinConfig{Shadow: s.Merge.Endpoints == "shadow"},
		Export:    exported.exportConfig(),
		Deriver:   deriver,
		Allocator: vips,
		Mesh:      s.mesh,
		Trust:     id.trusted(),
		Keys:      keys,
		Gap:       s.XDS.Gap,
		Publish: publisher(server, back, out, &written{record: d.audit.Record, store: d.store.Name()},
			log.Named("push")),
	})
	back.assembler, back.proxies, back.entries, back.setting, back.file = assembler, fleet{server}, deriver.Entries, maker.setting, maker.file
	back.more = append(back.more, d.auditProblems, state.problems, vips.Problems, server.RefusedRegistrations)
	if err := p.watchHome(d, back, maker.active); err != nil {
		return p, err
	}
	if err := back.watch(id, keys, d.registry); err != nil {
		return p, err
	}

	site := &web{listener: d.metrics, gatherer: d.registry, waiting: back.waiting, log: log.Named("metrics")}
	p.run("xds", server.Run)
	p.run("analysis", back.analysis.Run)
	if err := p.serve(s.XDS, d, id, server, exported, log.Named("xds")); err != nil {
		return p, err
	}
	if err := p.webhook(s, d, id, log.Named("webhook")); err != nil {
		return p, err
	}
	p.run("metrics", site.run)
	control := id.adminConfig(s, d, back, log.Named("admin"))
	control.Explain = id.explainer(back, server)
	control.Catalog = &catalog{context: back.context, changed: back.bell.wait, supplied: assembler.Supplied,
		entries: deriver.Entries, derived: deriver.Name(), setting: maker.setting}
	control.Store = &storekeeper{store: d.store, context: back.context, sources: back.sources,
		problems: back.sourceProblems, record: d.audit.Record, log: log.Named("store")}
	control.Maintenance = &maintenance{named: maker.named, problems: back.sourceProblems,
		accept: assembler.AcceptRemovals, records: d.store.Records(), audit: d.audit.Record}
	p.run("admin", admin.New(control).Run)
	p.run("workloads", workloads.Run)
	p.run("configuration", assembler.Run)
	p.run("saved objects", state.objects.Run)
	p.run("saved services", state.services.Run)
	p.run("problem log", (&problemLog{problems: back.readSourceProblems, report: reporter(log.Named("sources"))}).run)
	p.run("patience", (&patience{waiting: back.waiting, log: log}).run)
	p.run("export", out.run)
	settings := &reloader{anew: again, current: s, maker: maker, arrange: assembler.SetSources, export: out.arrange,
		record: d.audit.Record, log: log.Named("settings"),
		systemd: sdnotify.Notifier{Log: log}}
	back.more = append(back.more, settings.problems, out.problems)
	if err := d.registry.Register(out); err != nil {
		return p, err
	}
	p.run("settings", settings.run)
	p.run("systemd", (&serviceManager{notifier: sdnotify.Notifier{Log: log}, waiting: back.waiting,
		responds: assembler.Responds}).run)
	return p, nil
}

// identity is what proves and issues identities; nil when no setting asks for it.
func (d doors) identity(ctx context.Context, s settings, back *backend, log hclog.Logger) (*identity, error) {
	if !s.secure() {
		return nil, nil
	}
	at, own := findReach(ctx, s.XDS.Advertise, d.secure.Addr(), thisMachine()), findReach(ctx, nil, d.secure.Addr(),
		thisMachine())
	log.Info("machines join here", "addresses", at.addresses)
	return newIdentity(ctx, identityConfig{settings: s, reach: at, own: own.addresses[0], records: d.store.Records(),
		context: back.context, waiting: back.waiting, audit: d.audit.Record, registerer: d.registry, log: log})
}

// serve has xDS served on the addresses that are open, and the authority beside it where there is
// TLS.
func (p *program) serve(s xdsSettings, d doors, id *identity, server *xds.Server, exported *mcpPublisher,
	log hclog.Logger) error {
	if d.plain != nil {
		plain := grpc.NewServer(append(xds.ServerOptions(), grpc.ConnectionTimeout(handshakeTime))...)
		server.Register(plain)
		out := newExits(d.plain)
		p.run("plaintext xds listener", func(ctx context.Context) error { return serveGRPC(ctx, plain, out, out) })
	}
	if id == nil {
		return nil
	}
	id.fleet.Store(server)
	id.exported.Store(exported)
	id.run(p)
	limiter, err := newConnLimiter(s.WorkloadConnections, d.registry, log)
	if err != nil {
		return err
	}
	out := newExits(d.secure)
	in, err := limitUnauthenticated(out, d.registry)
	if err != nil {
		return err
	}
	secure := grpc.NewServer(slices.Concat(xds.ServerOptions(), refusals(),
		[]grpc.ServerOption{grpc.Creds(id.credentials(limiter)), grpc.ConnectionTimeout(handshakeTime)})...)
	server.Register(secure)
	id.server.Register(secure)
	p.run("xds listener", func(ctx context.Context) error { return serveGRPC(ctx, secure, in, out) })
	return nil
}

// mostReported is how many problems that appear at once are logged one by one, and as many of those
// that are over.
const mostReported = 50

// reporter logs problems of configuration when they appear and when they are over.
func reporter(log hclog.Logger) func(appeared, gone []feed.Problem) {
	return func(appeared, gone []feed.Problem) {
		for _, p := range appeared[:min(len(appeared), mostReported)] {
			log.Warn("configuration problem", "problem", p.String(), "source", p.Source)
		}
		if more := len(appeared) - mostReported; more > 0 {
			log.Warn("more configuration problems: \"ashorectl problems\" lists all", "problems", more)
		}
		for _, p := range gone[:min(len(gone), mostReported)] {
			log.Info("configuration problem is over", "problem", p.String(), "source", p.Source)
		}
		if more := len(gone) - mostReported; more > 0 {
			log.Info("more configuration problems are over", "problems", more)
		}
	}
}

// publisher hands every context to the proxies, then to operators, the audit log and who registers
// it elsewhere.
func publisher(server *xds.Server, back *backend, out *exports, w *written, log hclog.Logger) func(*push.Context,
	push.Changes) {
	return func(c *push.Context, changes push.Changes) {
		server.Publish(c, changes.Since)
		first := back.publish(c)
		w.published(c.Inputs().Objects)
		out.publish(c)
		if first {
			debug.FreeOSMemory() // reading everything leaves as much garbage as there is configuration
			log.Info("ready: proxies are served", "objects", c.Inputs().Objects.Len(),
				"services", c.Inputs().Services.Len())
			return
		}
		log.Debug("published", "mesh", changes.Mesh, "objects", changes.Objects, "services", changes.Services,
			"endpoints", changes.Endpoints)
	}
}
