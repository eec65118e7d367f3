package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
	"github.com/ashore-mesh/ashore/internal/server"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// program is what ashored is started with.
type program struct {
	read    func() (settings.Config, error) // reads the settings
	hup     <-chan os.Signal                // asks for a reload
	out     io.Writer                       // receives the log
	logging func(hclog.Logger)              // is called with each new log
	refused error                           // why the latest settings are not in use; nil: they are
}

// serve runs ashored until ctx ends or a part fails. After a reload it starts all parts again. If they
// do not start, the former settings are used.
func (p *program) serve(ctx context.Context) error {
	s, err := p.read()
	if err != nil {
		return usage(err)
	}
	log := p.newLog(s.Log)
	var former *settings.Config // those before the reload; nil: there was none
	for ctx.Err() == nil {
		systemd := sdnotify.Notifier{Log: log}
		stop := context.AfterFunc(ctx, func() { systemd.Tell(sdnotify.Stopping) })
		next, err := p.run(ctx, s, log)
		stop()
		_, start := errors.AsType[startError](err)
		switch {
		case ctx.Err() != nil && errors.Is(err, ctx.Err()): // it ended during the start
		case start && former != nil:
			log.Error("ashored does not start with the new settings; the former ones are used", "error", err)
			next, former, p.refused = *former, nil, err
		case err != nil && s.Log.Format == "json":
			log.Error("ended by a failure", "error", err)
			return loggedError{err}
		case err != nil:
			return err
		default:
			used := s
			former = &used
		}
		s, log = next, p.newLog(next.Log)
	}
	log.Info("ended")
	return nil
}

// startError is why ashored did not start.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

// run runs ashored with one version of the settings. It returns the next version to run with, or
// any when ctx has ended.
func (p *program) run(ctx context.Context, s settings.Config, log hclog.Logger) (settings.Config, error) {
	srv, err := server.New(ctx, s, log)
	if err != nil {
		return s, startError{err}
	}
	log.Info("serving", "version", build.Read().Version, "xds", s.XDS.Address, "plaintext_xds", s.XDS.PlaintextAddress,
		"metrics", s.Metrics.Address, "admin", s.Admin.Socket, "sources", settings.SourceNames(s.SourceList),
		"state", s.State)
	if p.refused != nil {
		srv.RefuseSettings(p.refused)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return s, err
		case <-p.hup:
			next, err := p.read()
			if err != nil {
				log.Error("the settings are not reloaded; the former ones stay in use", "error", err)
				srv.RefuseSettings(err)
				continue
			}
			p.refused = nil
			log.Info("the settings are reloaded: all parts start again")
			systemd := sdnotify.Notifier{Log: log}
			systemd.Reloading()
			systemd.Tell(sdnotify.Alive) // the next sign of life follows when all parts run again
			srv.Withdraw(ctx, next)
			cancel()
			return next, <-ended
		}
	}
}

// newLog returns a log with these settings.
func (p *program) newLog(s settings.Log) hclog.Logger {
	log := newLogger(s, p.out)
	p.logging(log)
	return log
}

// newLogger returns a logger that writes to w.
func newLogger(s settings.Log, w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       "ashored",
		Level:      hclog.LevelFromString(s.Level),
		JSONFormat: s.Format == "json",
		Output:     w,
	})
}
