package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/adminapi"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/registry/shared"
	"github.com/ashore-mesh/ashore/registry/vip"
	"github.com/ashore-mesh/ashore/xds"
)

const (
	// buildGap is the least time between two builds while changes keep coming.
	buildGap = 50 * time.Millisecond
)

// Server is every part of ashored, connected. Run it once.
type Server struct {
	log      hclog.Logger
	cfg      settings.Config // immutable
	registry *prometheus.Registry
	parts    []task.Part
	closers  []func() error // in order of opening
	problems []func() []feed.Problem

	listeners listeners
	home      *bolt.Store   // in the state folder
	store     meshStore     // what is written to the mesh
	shared    *consul.Store // the same, if it is in Consul; else nil
	audit     *audit.Log

	refused   atomic.Pointer[string]       // why the latest settings are not in use; nil: they are
	published atomic.Pointer[push.Context] // what proxies are served from; nil before the first build
	exports   []export
	clusters  map[string]*cluster // by the name of their source
	proxies   *xds.Server
	// connections are those with TLS, set before proxies serves.
	connections limitedTLS
	assembler   *push.Assembler
	api         *adminapi.API
}

// New opens and builds every part: state, listeners, store, certificate authority, sources,
// assembler, xDS, admin API. On error it closes what it opened, in reverse. An empty store is an
// error, except in development.
func New(ctx context.Context, s settings.Config, log hclog.Logger) (*Server, error) {
	for _, w := range s.Warnings {
		log.Warn("setting", "problem", w.String())
	}
	if s.XDS.PlaintextAddress != "" && !loopback(s.XDS.PlaintextAddress) {
		log.Warn("xDS without TLS is open to other machines: whoever reaches it reads the mesh's configuration, "+
			"and in development registers workloads", "address", s.XDS.PlaintextAddress, "development", s.Development)
	}
	if exists, err := hasStore(s); err != nil {
		return nil, err
	} else if !exists && !s.Development {
		return nil, fmt.Errorf("there is no store in %s: correct the setting state, or create one with \"ashored init\"",
			s.State)
	}
	srv := newServer(s, log)
	if err := srv.build(ctx); err != nil {
		return nil, errors.Join(err, srv.close())
	}
	return srv, nil
}

func newServer(s settings.Config, log hclog.Logger) *Server {
	return &Server{log: log, cfg: s, registry: newRegistry(), clusters: map[string]*cluster{}}
}

// Run runs all parts until ctx ends or one fails, and closes everything.
func (s *Server) Run(ctx context.Context) error {
	return errors.Join(task.Run(ctx, s.parts...), s.close())
}

// close closes what was opened, the last first.
func (s *Server) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// run adds a part.
func (s *Server) run(name string, f func(context.Context) error) {
	s.parts = append(s.parts, task.Part{Name: name, Run: f})
}

// report adds the problems of parts.
func (s *Server) report(problems ...func() []feed.Problem) {
	s.problems = append(s.problems, problems...)
}

// reportTexts adds the errors of a part.
func (s *Server) reportTexts(source string, texts func() []string) {
	s.report(func() []feed.Problem { return problemsOf(source, feed.Error, texts()...) })
}

// build builds all parts in the order in which they need each other.
func (s *Server) build(ctx context.Context) error {
	cfg := &s.cfg
	if err := s.openState(); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return err
	}
	if _, err := s.openStore(ctx, cfg.Development); err != nil {
		return err
	}
	saved := s.openSaved(ctx)
	sources, err := s.makeSources(savedSources(saved))
	if err != nil {
		return err
	}
	var reach reach
	if cfg.Secure() {
		reach = findReach(cfg.XDS.Advertise, s.listeners.secure.Addr(), outgoing)
		s.log.Named("ca").Info("machines join here", "addresses", reach.addresses)
	}
	workloads, err := s.newRuntime(ctx, reach)
	if err != nil {
		return err
	}
	id, err := s.newIdentity(ctx, reach, workloads)
	if err != nil {
		return err
	}
	objects, export := s.newMCP()
	if err := s.newXDS(id, workloads, objects); err != nil {
		return err
	}
	if err := s.newExports(); err != nil {
		return err
	}
	keys := newKeySource(s.cfg, s.log.Named("jwks"))
	deriver := entry.New(workloads, s.selecting()...)
	secrets := secret.NewManager(secret.Config{Dir: cfg.Secrets.Dir, Records: s.store.Records(),
		KeyFile: filepath.Join(cfg.State, "secrets.key"), Cluster: s.clusterSecrets()})
	read := make(chan *secret.Set)
	s.run("secrets", func(ctx context.Context) error { return secrets.Run(ctx, read) })
	vips := vip.New(vip.Config{Records: s.store.Records(), Log: s.log.Named("vip")})
	analysis := analyze.NewBackground()
	s.run("analysis", analysis.Run)
	s.assembler = push.NewAssembler(push.AssemblerConfig{
		Sources: sources, Saved: saved.content, Save: saved.save, Mesh: cfg.MeshConfig, Gap: buildGap,
		Join:   registry.JoinConfig{Shadow: cfg.Merge.Shadows()},
		Export: export, Deriver: deriver, Allocator: vips, Keys: keys,
		Trust: s.runTrust(id), Secrets: read, Publish: s.publisher(analysis),
	})
	analyzed := func() []feed.Problem { return analyze.Problems(analysis.Findings()) }
	s.report(analyzed, s.proxies.ResourceProblems, saved.problems,
		vips.Problems, s.storeProblems, func() []feed.Problem { return keys.problems(s.published.Load()) }, secrets.Problems,
		s.settingsProblems)
	s.reportTexts("audit log", s.audit.Problems)
	s.reportTexts("workloads", workloads.Problems)
	s.collect(keys.collect)
	s.serveOperators(id, reach, workloads, deriver, secrets)
	s.serveXDS(id)
	s.serveWebhook(id)
	s.reportToClusters(id)
	s.runLeaders()
	s.api.More = s.problems // of all parts above
	s.run("workloads", workloads.Run)
	s.run("configuration", s.assembler.Run)
	s.run("problem log", (&problemLog{sources: s.api.SourceProblems, analyzed: analyzed,
		log: s.log.Named("problems")}).run)
	s.run("systemd", (&startup{notifier: sdnotify.Notifier{Log: s.log}, waiting: s.api.Waiting,
		responds: s.assembler.Responds, log: s.log}).run)
	return nil
}

// serveOperators builds the admin API, metrics and health.
func (s *Server) serveOperators(id *identity, reach reach, workloads *shared.Runtime, deriver *entry.Deriver,
	secrets *secret.Manager) {
	log := s.log.Named("admin")
	s.api = &adminapi.API{Started: time.Now(), Settings: s.cfg, Published: s.published.Load, Record: s.audit.Record,
		AuditTail: s.audit.Tail, Connected: s.proxies.Proxies, Log: s.log,
		Resources: s.proxies.Dump, Assembler: s.assembler, Entries: deriver.Entries,
		Derived: deriver.Name(), Store: s.store, Records: s.store.Records(), Secrets: secrets, Addresses: reach.addresses,
		Notes: reach.notes, OtherAddresses: workloads.Advertised}
	if id != nil {
		s.api.Manager, s.api.Ledger = id.manager, id.ledger
		s.api.Revoked, s.api.Workloads = id.peers.Revoked, id.ledger.Workloads
		health := newAuthorityHealth(s.api)
		s.report(health.problems)
		s.run("certificate authority health", health.run)
		s.collect(health.collect)
	}
	s.run("admin", func(ctx context.Context) error {
		return admin.Serve(ctx, admin.Config{Listener: s.listeners.admin, Routes: s.api.Routes(), Record: s.audit.Record,
			Log: log, Role: s.cfg.Access.Role})
	})
	site := &web{listener: s.listeners.metrics, gatherer: s.registry, waiting: s.api.Waiting, log: s.log.Named("metrics")}
	site.targets = &discovery{tokenFile: s.cfg.Metrics.TargetsTokenFile, cluster: s.cfg.MeshConfig.Cluster(),
		proxies: s.proxies.Proxies, log: site.log}
	s.run("metrics", site.run)
	s.collect(summaryMetrics(s.api.Summary))
}

// loadingPercent is Go's GC percentage until the first context is published: reading everything makes
// much garbage, and is the peak of memory.
const loadingPercent = 50

// publisher hands each context to the proxies, then to operators, the audit log and exports.
func (s *Server) publisher(analysis *analyze.Background) func(*push.Context, push.Changes) {
	log := s.log.Named("push")
	usual := debug.SetGCPercent(loadingPercent)
	s.closers = append(s.closers, func() error { debug.SetGCPercent(usual); return nil })
	written := &adminapi.ConfigAudit{Record: s.audit.Record}
	count := countTriggers(s.registry)
	return func(c *push.Context, changes push.Changes) {
		count(changes)
		s.proxies.Publish(c, changes.Since)
		first := s.published.Swap(c) == nil
		analysis.Publish(c)
		written.Published(c.Inputs().Objects)
		for _, x := range s.exports {
			x.Publish(c.Inputs().Services, c.Inputs().Endpoints)
		}
		if first {
			debug.SetGCPercent(usual)
			debug.FreeOSMemory() // reading everything leaves as much garbage as there is configuration
			log.Info("ready: proxies are served", "objects", c.Inputs().Objects.Len(),
				"services", c.Inputs().Services.Len())
			return
		}
		log.Debug("published", "mesh", changes.Mesh, "objects", changes.Objects, "services", changes.Services,
			"endpoints", changes.Endpoints)
	}
}

// RefuseSettings reports that a reload found settings that cannot be used, until the server ends.
func (s *Server) RefuseSettings(err error) {
	text := "the settings are not reloaded; the former ones stay in use: " + err.Error()
	s.refused.Store(&text)
}

func (s *Server) settingsProblems() []feed.Problem {
	if text := s.refused.Load(); text != nil {
		return problemsOf("settings", feed.Error, *text)
	}
	return nil
}

// problemsOf returns a problem for each text.
func problemsOf(source string, severity feed.Severity, texts ...string) []feed.Problem {
	out := make([]feed.Problem, len(texts))
	for i, text := range texts {
		out[i] = feed.Problem{Severity: severity, Source: source, Text: text}
	}
	return out
}
