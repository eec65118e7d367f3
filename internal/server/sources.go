package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

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
	made  map[string]madeSource // by the name in the settings

	mu       sync.Mutex
	settings map[string]settings.Source // guarded by mu; of the active sources, by Source.Name
	inTexts  *strings.Replacer          // guarded by mu; from Source.Name to the name in the settings
}

// madeSource is one source: objects or services is set.
type madeSource struct {
	settings settings.Source
	objects  config.Source
	services feed.Source[registry.Instances]
}

func (m madeSource) name() string {
	if m.objects != nil {
		return m.objects.Name()
	}
	return m.services.Name()
}

func newSourceMaker(store meshStore, saved map[string]bool, log hclog.Logger) *sourceMaker {
	return &sourceMaker{store: store, saved: saved, log: log, made: map[string]madeSource{},
		inTexts: strings.NewReplacer()}
}

// make makes the sources of a list. They become active when take is called.
func (m *sourceMaker) make(list []settings.Source) (out push.Sources, take func(), err error) {
	made := map[string]madeSource{}
	var errs []error
	for _, s := range list {
		src, had := m.made[s.Name]
		if !had || src.settings.Text != s.Text || src.settings.Kind != s.Kind {
			if src, err = m.source(s); err != nil {
				errs = append(errs, s.Wrap(err))
				continue
			}
		}
		src.settings = s
		made[s.Name] = src
		if src.objects != nil {
			out.Objects = append(out.Objects, pushSource(src.objects, s))
		} else {
			out.Services = append(out.Services, pushSource(src.services, s))
		}
	}
	if err := errors.Join(append(errs, out.Check())...); err != nil {
		return push.Sources{}, nil, err
	}
	return out, func() { m.take(made) }, nil
}

func pushSource[T any](src feed.Source[T], s settings.Source) push.Source[T] {
	return push.Source[T]{Source: src, Optional: !s.Required, MaxAge: s.MaxAge}
}

// take makes these sources the active ones.
func (m *sourceMaker) take(made map[string]madeSource) {
	m.made = made
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settings = make(map[string]settings.Source, len(made))
	for _, src := range made {
		m.settings[src.name()] = src.settings
	}
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) }
	var replace []string
	for _, name := range slices.SortedFunc(maps.Keys(m.settings), longestFirst) { // one may begin with another
		replace = append(replace, name, m.settings[name].Name)
	}
	m.inTexts = strings.NewReplacer(replace...)
}

// Text returns a text that names sources by their names in the settings. Safe for concurrent use.
func (m *sourceMaker) Text(text string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inTexts.Replace(text)
}

// Setting returns the name of a source in the settings; its own name when the settings do not have
// it. Safe for concurrent use.
func (m *sourceMaker) Setting(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.settings[name].Name, name)
}

// Folder returns the folder of a source of files; empty for others. Safe for concurrent use.
func (m *sourceMaker) Folder(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.settings[name].Options.(*settings.FilesSource); ok {
		return o.Folder
	}
	return ""
}

// named returns the name of a source by its name in the settings, or the name itself; false: there
// is no such source. Safe for concurrent use.
func (m *sourceMaker) named(setting string) (name string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.settings {
		if s.Name == setting || name == setting {
			return name, true
		}
	}
	return "", false
}

// active reports whether there is a source of that name. Safe for concurrent use.
func (m *sourceMaker) active(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.settings[name]
	return ok
}

// File returns how to show a file of a source to operators: with the whole path unless there is
// only one folder. Safe for concurrent use.
func (m *sourceMaker) File(source, file string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	folders := 0
	for _, s := range m.settings {
		if _, ok := s.Options.(*settings.FilesSource); ok {
			folders++
		}
	}
	o, ok := m.settings[source].Options.(*settings.FilesSource)
	if !ok || file == "" || filepath.IsAbs(file) || folders == 1 {
		return file
	}
	return filepath.Join(o.Folder, file)
}

// Awaited describes a source that serving waits for, with the setting that says so.
func (m *sourceMaker) Awaited(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.settings[name]
	if !known {
		return name
	}
	return fmt.Sprintf("%s (%s)", name, s.Requiring())
}

// exposed warns of Consuls whose services others may change. Safe for concurrent use.
func (m *sourceMaker) exposed() (out []feed.Problem) {
	m.mu.Lock()
	active := maps.Clone(m.settings)
	m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(active)) {
		s := active[name]
		c, ok := s.Options.(*settings.ConsulSource)
		if !ok {
			continue
		}
		consulhttp.Exposure(c.Address, c.TokenFile, func(option, format string, args ...any) {
			out = append(out, feed.Problem{Severity: feed.Warning, Source: name, Field: s.At + "." + option,
				Text: fmt.Sprintf(format, args...)})
		})
	}
	return out
}

// source makes one.
func (m *sourceMaker) source(s settings.Source) (madeSource, error) {
	log := m.log.Named(s.Name)
	switch o := s.Options.(type) {
	case *settings.FilesSource:
		files, err := filestore.New(filestore.Config{Name: s.Name, Dir: o.Folder, FollowSymlinks: o.FollowSymlinks, Log: log})
		if err == nil && s.Required && !m.saved[files.Name()] {
			err = files.Check()
		}
		return madeSource{objects: files}, err
	case *settings.StoreSource:
		return madeSource{objects: m.store}, nil
	case *settings.ConsulSource:
		services, err := consul.New(consul.Config{Name: s.Name, Options: o.Options, Log: log})
		return madeSource{services: services}, err
	case *settings.MCPSource:
		if o.Plaintext && !loopback(strings.TrimPrefix(o.Address, "xds://")) {
			m.log.Warn("a source without TLS: anybody on the path can read and change the mesh's configuration",
				"source", s.Name, "address", o.Address)
		}
		server, err := mcp.New(o.Config(s.Name, log))
		if err == nil && len(m.made) > 0 { // at the start the files may not be there yet
			err = server.CheckFiles()
		}
		return madeSource{objects: server}, err
	}
	return madeSource{}, fmt.Errorf("unknown kind %q", s.Kind)
}
