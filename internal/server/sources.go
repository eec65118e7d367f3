package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// sourceMaker makes the sources that the settings name. A source whose settings did not change
// stays the same and goes on.
type sourceMaker struct {
	store meshStore       // a source
	saved map[string]bool // the names of sources whose content from before the restart is used
	log   hclog.Logger
	made  map[string]madeSource // by name; owned by Reload

	active atomic.Pointer[[]settings.Source] // those of made
}

// madeSource is one source: objects or services is set.
type madeSource struct {
	settings settings.Source
	objects  config.Source
	services feed.Source[registry.Instances]
}

func newSourceMaker(store meshStore, saved map[string]bool, log hclog.Logger) *sourceMaker {
	m := &sourceMaker{store: store, saved: saved, log: log}
	m.active.Store(&[]settings.Source{})
	return m
}

// make makes the sources of a list. They become active when take is called.
func (m *sourceMaker) make(list []settings.Source) (out push.Sources, take func(), err error) {
	made := map[string]madeSource{}
	var errs []error
	for _, s := range list {
		src, had := m.made[s.ID()]
		if !had || !src.settings.Equal(s) {
			if src, err = m.source(s); err != nil {
				errs = append(errs, s.Wrap(err))
				continue
			}
		}
		src.settings = s
		made[s.ID()] = src
		if src.objects != nil {
			out.Objects = append(out.Objects, pushSource(src.objects, s))
		} else {
			out.Services = append(out.Services, pushSource(src.services, s))
		}
	}
	take = func() {
		m.made = made
		m.active.Store(&list)
	}
	return out, take, errors.Join(errs...)
}

func pushSource[T any](src feed.Source[T], s settings.Source) push.Source[T] {
	return push.Source[T]{Source: src, Optional: !s.Required, MaxAge: s.MaxAge}
}

// source makes one.
func (m *sourceMaker) source(s settings.Source) (madeSource, error) {
	log := m.log.Named(s.Name)
	switch o := s.Options.(type) {
	case *settings.FilesSource:
		files, err := filestore.New(filestore.Config{Name: s.ID(), Dir: o.Folder, Log: log})
		if err == nil && s.Required && !m.saved[s.ID()] {
			err = files.Check()
		}
		return madeSource{objects: files}, err
	case *settings.StoreSource:
		return madeSource{objects: m.store}, nil
	case *settings.ConsulSource:
		services, err := consul.New(consul.Config{Name: s.ID(), Options: o.Options, Log: log})
		return madeSource{services: services}, err
	case *settings.MCPSource:
		if o.Plaintext && !loopback(strings.TrimPrefix(o.Address, "xds://")) {
			m.log.Warn("a source without TLS: anybody on the path can read and change the mesh's configuration",
				"source", s.ID(), "address", o.Address)
		}
		server, err := mcp.New(o.Config(s.ID(), log))
		if err == nil && m.made != nil { // at the start the files may not be there yet
			err = server.CheckFiles()
		}
		return madeSource{objects: server}, err
	}
	return madeSource{}, fmt.Errorf("unknown kind %q", s.Kind)
}

// find returns an active source; false: there is none of that name. Safe for concurrent use, as all
// of the following.
func (m *sourceMaker) find(name string) (settings.Source, bool) {
	active := *m.active.Load()
	i := slices.IndexFunc(active, func(s settings.Source) bool { return s.ID() == name })
	if i < 0 {
		return settings.Source{}, false
	}
	return active[i], true
}

// isActive reports whether there is a source of that name.
func (m *sourceMaker) isActive(name string) bool {
	_, ok := m.find(name)
	return ok
}

// Folder returns the folder of a source of files; empty for others.
func (m *sourceMaker) Folder(name string) string {
	s, _ := m.find(name)
	if o, ok := s.Options.(*settings.FilesSource); ok {
		return o.Folder
	}
	return ""
}

// File returns how to show a file of a source to operators: with the whole path unless there is
// only one folder.
func (m *sourceMaker) File(source, file string) string {
	folders := 0
	for _, s := range *m.active.Load() {
		if m.Folder(s.ID()) != "" {
			folders++
		}
	}
	folder := m.Folder(source)
	if folder == "" || file == "" || filepath.IsAbs(file) || folders == 1 {
		return file
	}
	return filepath.Join(folder, file)
}

// Awaited describes a source that serving waits for, with the setting that says so.
func (m *sourceMaker) Awaited(name string) string {
	s, known := m.find(name)
	if !known {
		return name
	}
	return fmt.Sprintf("%s (%s)", name, s.Requiring())
}

// exposed warns of Consuls whose services others may change.
func (m *sourceMaker) exposed() (out []feed.Problem) {
	for _, s := range *m.active.Load() {
		if c, ok := s.Options.(*settings.ConsulSource); ok {
			out = append(out, exposure(s.ID(), s.At, c.Address, c.TokenFile)...)
		}
	}
	return out
}

// exposure warns of a Consul that others may read or change. setting is the one with its address.
func exposure(source, setting, address, tokenFile string) (out []feed.Problem) {
	consulhttp.Exposure(address, tokenFile, func(option, format string, args ...any) {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: source, Field: setting + "." + option,
			Text: fmt.Sprintf(format, args...)})
	})
	return out
}
