package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/gen"
)

// program is every part, connected.
type program struct {
	parts []task.Part
	close []func() error // in order of opening
}

// serve builds every part and runs them until ctx ends or one fails.
func serve(ctx context.Context, s settings, log hclog.Logger) error {
	s.Memory.apply()
	for _, w := range s.warnings {
		log.Warn("setting", "problem", w.String())
	}
	if !loopback(s.XDS.PlaintextAddress) {
		log.Warn("xDS without TLS is open to other machines: whoever reaches it reads the mesh's configuration", "address", s.XDS.PlaintextAddress)
	}
	p, err := wire(ctx, s, log)
	if err != nil {
		return errors.Join(err, p.end())
	}
	log.Info("serving", "version", build.Read().Version, "xds", s.XDS.PlaintextAddress, "metrics", s.Metrics.Address, "admin", s.Admin.Socket, "files", s.Files, "state", s.State)
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
	xds, metrics net.Listener
	admin        net.Listener
	store        *bolt.Store
}

// open opens the store and the addresses. What is open is closed with the program. The store comes
// first: of two programs with one state folder the second is told which process holds it.
func (p *program) open(s settings, log hclog.Logger) (doors, error) {
	var d doors
	check, err := checkCommand()
	if err != nil {
		return d, err
	}
	if d.store, err = bolt.New(bolt.Config{Dir: s.State, CheckCommand: check, Log: log.Named("store")}); err != nil {
		return d, fmt.Errorf("store (setting state, or --state in development): %w", err)
	}
	p.close = append(p.close, d.store.Close)
	if d.xds, err = listen(s.XDS.PlaintextAddress, "xds.plaintextAddress", "xds-address"); err != nil {
		return d, err
	}
	p.closing(d.xds)
	if d.metrics, err = listen(s.Metrics.Address, "metrics.address", "metrics-address"); err != nil {
		return d, err
	}
	p.closing(d.metrics)
	if d.admin, err = admin.Listen(s.Admin.Socket, false); err != nil {
		return d, fmt.Errorf("%w (setting admin.socket, or --admin-socket in development)", err)
	}
	p.closing(d.admin)
	return d, nil
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

// firstStart says, before anything is made, that there is no configuration: without a store nothing stands in for a
// folder that cannot be read.
func firstStart(ctx context.Context, s settings) error {
	if _, err := os.Stat(filepath.Join(s.State, bolt.FileName)); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it tells what is wrong
	}
	files, err := filestore.New(filestore.Config{Dir: s.Files})
	if err != nil {
		return err
	}
	return files.Check(ctx)
}

// wire opens what the settings name and connects the parts. With an error, what it returns is to be
// ended all the same.
func wire(ctx context.Context, s settings, log hclog.Logger) (*program, error) {
	p := &program{}
	if err := firstStart(ctx, s); err != nil {
		return p, err
	}
	d, err := p.open(s, log)
	if err != nil {
		return p, err
	}
	files, err := filestore.New(filestore.Config{Dir: s.Files, LastGood: d.store, Log: log.Named("files")})
	if err != nil {
		return p, err
	}
	if err := files.Check(ctx); err != nil {
		return p, err
	}
	generator := gen.New()
	back := &backend{started: time.Now(), settings: s.warnings, refused: generator.Refused}
	registry := newRegistry(back.summary)
	server, err := xds.New(xds.Config{Generator: generator, Log: log, Registerer: registry})
	if err != nil {
		return p, err
	}
	assembler := push.NewAssembler(push.AssemblerConfig{
		Objects: []config.Source{files, d.store},
		Derive:  entry.NewBackground(d.store, nil, 0),
		Mesh:    s.mesh,
		Gap:     s.XDS.Gap,
		Report:  reporter(log.Named("push")),
		Publish: publisher(server, back, log.Named("push")),
	})
	back.assembler, back.proxies = assembler.Status, fleet{server}

	srv := grpc.NewServer(xds.ServerOptions()...)
	server.Register(srv)
	site := &web{listener: d.metrics, gatherer: registry, waiting: back.waiting, log: log.Named("metrics")}
	operators := admin.New(admin.Config{Listener: d.admin, Backend: back, Log: log.Named("admin")})
	p.run("xds", server.Run)
	p.run("xds listener", func(ctx context.Context) error { return serveGRPC(ctx, srv, d.xds) })
	p.run("metrics", site.run)
	p.run("admin", operators.Run)
	p.run("configuration", assembler.Run)
	return p, nil
}

// reporter logs what lies between what the sources say: they log their own problems themselves.
func reporter(log hclog.Logger) func(appeared, gone []feed.Problem) {
	return func(appeared, gone []feed.Problem) {
		for _, p := range appeared {
			log.Warn("configuration problem", "problem", p.String())
		}
		for _, p := range gone {
			log.Info("configuration problem is over", "problem", p.String())
		}
	}
}

// publisher hands every context to the proxies, then to operators.
func publisher(server *xds.Server, back *backend, log hclog.Logger) func(*push.Context, push.Changes) {
	return func(c *push.Context, changes push.Changes) {
		server.Publish(c, changes.Since)
		if back.publish(c) {
			debug.FreeOSMemory() // reading everything leaves as much garbage as there is configuration
			log.Info("ready: proxies are served", "objects", c.Inputs().Objects.Len(), "services", c.Inputs().Services.Len())
			return
		}
		log.Debug("published", "mesh", changes.Mesh, "objects", changes.Objects, "services", changes.Services, "endpoints", changes.Endpoints)
	}
}
