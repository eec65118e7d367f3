package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/consul"
	"github.com/ashore-mesh/ashore/registry/vip"
)

// sourceMaker makes the sources that the settings name. What is as it was before stays the same source, and goes on.
type sourceMaker struct {
	home  *bolt.Store // keeps what sources said last
	store meshStore   // a source
	book  *vip.Book   // gives services their virtual addresses
	log   hclog.Logger
	made  map[string]madeSource // by the setting's name
	named map[string]bool       // the folders that the settings name which are taken in, as sources call themselves

	mu       sync.Mutex
	settings map[string]sourceSettings // guarded by mu: those at work, by the source's own name
	unused   []feed.Problem            // guarded by mu: about what was kept of sources that left
}

// madeSource is one source: objects or instances is set.
type madeSource struct {
	settings  sourceSettings
	objects   config.Source
	instances feed.Source[registry.Instances]
}

func (m madeSource) name() string {
	if m.objects != nil {
		return m.objects.Name()
	}
	return m.instances.Name()
}

func newSourceMaker(home *bolt.Store, store meshStore, book *vip.Book, log hclog.Logger) *sourceMaker {
	return &sourceMaker{home: home, store: store, book: book, log: log, made: map[string]madeSource{}}
}

// forgetTime is how long it may take to forget what was kept of a source.
const forgetTime = 5 * time.Second

// make makes the sources of a list. Until take is called those of before are what there is.
func (m *sourceMaker) make(ctx context.Context, list []sourceSettings) (out push.Sources, take func(), err error) {
	made := map[string]madeSource{}
	m.named = map[string]bool{}
	for _, s := range list {
		if f, ok := s.options.(*filesSource); ok {
			m.named["file:"+absolute(f.Folder)] = true
		}
	}
	var errs []error
	for _, s := range list {
		src, had := m.made[s.Name]
		if !had || src.settings.text != s.text || src.settings.Kind != s.Kind {
			var err error
			if src, err = m.source(ctx, s); err != nil {
				errs = append(errs, s.wrap(err))
				continue
			}
		}
		src.settings = s
		made[s.Name] = src
		if src.objects != nil {
			out.Objects = append(out.Objects, src.objects)
		} else {
			out.Instances = append(out.Instances, src.instances)
		}
		if !s.Required {
			out.Optional = append(out.Optional, src.name())
		}
	}
	if err := errors.Join(append(errs, out.Check())...); err != nil {
		return push.Sources{}, nil, err
	}
	return out, func() { m.take(made) }, nil
}

// take makes these what there is.
func (m *sourceMaker) take(made map[string]madeSource) {
	m.made = made
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settings = make(map[string]sourceSettings, len(made))
	for _, src := range made {
		m.settings[src.name()] = src.settings
	}
}

// setting is the name among the settings of a source, by its own name; that where it stands in none. Safe for concurrent use.
func (m *sourceMaker) setting(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.settings[name].Name, name)
}

// file is what people call a file of a source, by the source's own name: the whole path where the settings name several folders,
// or this one no more. Safe for concurrent use.
func (m *sourceMaker) file(source, file string) string {
	folder, ok := strings.CutPrefix(source, "file:")
	if !ok || file == "" || filepath.IsAbs(file) {
		return file
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	folders := 0
	for name := range m.settings {
		if strings.HasPrefix(name, "file:") {
			folders++
		}
	}
	if _, named := m.settings[source]; named && folders == 1 {
		return file
	}
	return filepath.Join(folder, file)
}

// waited is a source that is waited for, by its own name, with the setting that says so.
func (m *sourceMaker) waited(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.settings[name]
	if !known {
		return name
	}
	return fmt.Sprintf("%s (%s)", name, s.requiring())
}

// source makes one.
func (m *sourceMaker) source(ctx context.Context, s sourceSettings) (madeSource, error) {
	switch o := s.options.(type) {
	case *filesSource:
		return m.files(ctx, s, *o)
	case *storeSource:
		if m.store == meshStore(m.home) {
			return madeSource{objects: m.store}, nil
		}
		return madeSource{objects: m.kept(m.store, s)}, nil
	case *consulSource:
		services, err := consul.New(consul.Config{Name: s.Name, Options: o.Options, Log: m.log.Named(s.Name)})
		if err != nil {
			return madeSource{}, err
		}
		made := madeSource{instances: lastgood.New(lastgood.Config[registry.Instances]{
			Source: services, Store: m.home, Encode: registry.EncodeInstances, Decode: registry.DecodeInstances,
			MaxAge: s.MaxAge, Drop: s.WhenTooOld == "drop", Log: m.log.Named(s.Name),
		})}
		if o.Allocates() {
			made.instances = vip.New(vip.Config{Source: made.instances, Addresses: m.book.Holder()})
		}
		return made, nil
	case *mcpSource:
		if o.Plaintext && !loopback(strings.TrimPrefix(o.Address, "xds://")) {
			m.log.Warn("a source without TLS: whoever is on the way reads the mesh's configuration, and writes it", "source", s.Name, "address", o.Address)
		}
		server, err := mcp.New(o.config(s.Name, m.log.Named(s.Name)))
		if err == nil && len(m.made) > 0 { // at the start they may still be on their way
			err = server.CheckFiles()
		}
		if err != nil {
			return madeSource{}, err
		}
		return madeSource{objects: m.kept(server, s)}, nil
	}
	return madeSource{}, fmt.Errorf("nobody makes sources of the kind %q", s.Kind)
}

// files makes the source of a folder. A required one is refused here when nothing can be made of it. Others are waited for, and so is
// one that vanishes between here and its first reading while all the rest is at work.
func (m *sourceMaker) files(ctx context.Context, s sourceSettings, o filesSource) (madeSource, error) {
	files, err := filestore.New(filestore.Config{
		Dir: o.Folder, FollowSymlinks: o.FollowSymlinks, LastGood: m.home,
		Await: !s.Required || len(m.made) > 0, Log: m.log.Named(s.Name),
	})
	if err == nil && s.Required {
		err = files.Check(ctx)
	}
	if err == nil && s.Required {
		err = m.replacing(ctx, files.Name(), o)
	}
	if err != nil {
		return madeSource{}, err
	}
	return madeSource{objects: files}, nil
}

// kept is a source of objects whose content stands in after a restart.
func (m *sourceMaker) kept(src config.Source, s sourceSettings) config.Source {
	return lastgood.New(lastgood.Config[*config.Object]{
		Source: src, Store: m.home, Encode: encodeObjects, Decode: decodeObjects(src.Name()),
		MaxAge: s.MaxAge, Drop: s.WhenTooOld == "drop", Log: m.log.Named(s.Name),
	})
}

// replacing refuses a folder that takes the place of others and holds nothing. At a start an empty one is a beginning, where no
// other one was read before, or this one was. One that is not required is waited for instead.
func (m *sourceMaker) replacing(ctx context.Context, name string, o filesSource) error {
	if len(m.made) > 0 {
		return filled(o)
	}
	kept, err := m.home.LastGoodSources(ctx)
	if err != nil {
		return fmt.Errorf("what was kept of sources: %w", err)
	}
	if slices.Contains(kept, name) || !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(k, "file:") && !m.named[k] }) {
		return nil
	}
	return filled(o)
}

// filled says that a folder which is to take the place of another one holds nothing: its disk may not be mounted.
func filled(o filesSource) error {
	files, problems := filestore.List(o.Folder, o.FollowSymlinks)
	if len(files) == 0 && len(problems) > 0 {
		return errors.New(problems[0].String())
	}
	if len(files) == 0 {
		return fmt.Errorf("%s holds no file of configuration: fill it first; a file with a comment alone will do",
			o.Folder)
	}
	return nil
}

// sourceNames are those of the settings, for the log.
func sourceNames(list []sourceSettings) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Name
	}
	return out
}
