package main

import (
	"context"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
	"github.com/ashore-mesh/ashore/internal/server"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// serve runs ashored until ctx ends or a part fails. For each signal of hup it calls read and
// applies the settings.
func serve(ctx context.Context, s settings.Config, read func() (settings.Config, error), hup <-chan os.Signal,
	log hclog.Logger) error {
	srv, err := server.New(ctx, s, log)
	if err != nil {
		return err
	}
	log.Info("serving", "version", build.Read().Version, "xds", s.XDS.Address, "plaintext_xds", s.XDS.PlaintextAddress,
		"metrics", s.Metrics.Address, "admin", s.Admin.Socket, "sources", settings.SourceNames(s.SourceList),
		"state", s.State)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			if err == nil {
				log.Info("ended")
			}
			return err
		case <-hup:
			systemd := sdnotify.Notifier{Log: log}
			systemd.Reloading()
			next, err := read()
			srv.Reload(ctx, next, err)
			systemd.Tell(sdnotify.Ready)
		}
	}
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
