package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// Source is one source of configuration or services. Besides these it has the options of
// its kind.
type Source struct {
	// Name is for operators, and unique among the sources; see sourceName.
	// Default: the kind.
	Name string `yaml:"name"`
	// Kind is one of sourceKinds.
	Kind string `yaml:"kind"`
	// Required makes serving wait until it has delivered, or has content from before the restart.
	// Default true.
	Required bool `yaml:"required"`
	// MaxAge is how long its items are used while it is down, leastAge or more. Default 0: without
	// limit.
	MaxAge time.Duration `yaml:"maxAge"`

	Options sourceOptions // of its kind; FilesSource, StoreSource, MCPSource or ConsulSource
	At      string        // its path in the settings, "sources[0]"
	Place   string        // its place in a file, "ashored.yaml:3"; empty if it is in none
	Text    string        // the whole source, for comparison
}

// Requiring names the setting by which the source is waited for.
func (s Source) Requiring() string {
	if s.Place == "" {
		return "setting sources"
	}
	return fmt.Sprintf("setting %s.required, %s", s.At, s.Place)
}

// sourceOptions are those of one kind of source.
type sourceOptions interface {
	// into returns the struct that is decoded into.
	into() any
	// check reports each error to wrong.
	check(wrong func(option, format string, args ...any))
}

// sourceKinds are the kinds with their options, which hold the defaults.
func sourceKinds() map[string]func() sourceOptions {
	return map[string]func() sourceOptions{
		"files":  func() sourceOptions { return &FilesSource{} },
		"store":  func() sourceOptions { return &StoreSource{} },
		"mcp":    func() sourceOptions { return &MCPSource{} },
		"consul": func() sourceOptions { return &ConsulSource{} },
	}
}

// commonOptions are those of every source.
func commonOptions() []string { return []string{"name", "kind", "required", "maxAge"} }

// FilesSource is a folder of files.
type FilesSource struct {
	// Folder has YAML and JSON of Istio's API, with the folders below it.
	Folder string `yaml:"folder"`
	// FollowSymlinks follows symbolic links that lead out of the folder. Default false.
	FollowSymlinks bool `yaml:"followSymlinks"`
}

func (f *FilesSource) into() any { return f }

func (f *FilesSource) check(wrong func(option, format string, args ...any)) {
	if f.Folder == "" {
		wrong("folder", "empty: name a path")
	}
}

// StoreSource are the objects that ashorectl writes.
type StoreSource struct{}

func (s *StoreSource) into() any { return s }

func (*StoreSource) check(func(option, format string, args ...any)) {}

// ConsulSource is a Consul.
type ConsulSource struct{ consul.Options }

func (c *ConsulSource) into() any { return &c.Options }

func (c *ConsulSource) check(wrong func(option, format string, args ...any)) { c.Check(wrong) }

// MCPSource is another control plane, or another server that speaks MCP over xDS. mcp.Config
// describes the options.
type MCPSource struct {
	Address    string   `yaml:"address"`
	Plaintext  bool     `yaml:"plaintext"`
	CAFile     string   `yaml:"caFile"`
	CertFile   string   `yaml:"certFile"`
	KeyFile    string   `yaml:"keyFile"`
	ServerName string   `yaml:"serverName"`
	Kinds      []string `yaml:"kinds"`
	NodeID     string   `yaml:"nodeID"`
	Namespace  string   `yaml:"namespace"`
	Revision   string   `yaml:"revision"`
}

// Config returns the configuration of the source with that name.
func (m *MCPSource) Config(name string, log hclog.Logger) mcp.Config {
	return mcp.Config{
		Name: name, Address: m.Address, Plaintext: m.Plaintext, CAFile: m.CAFile, CertFile: m.CertFile,
		KeyFile: m.KeyFile, ServerName: m.ServerName, Kinds: m.Kinds, NodeID: m.NodeID, Namespace: m.Namespace,
		Revision: m.Revision, Log: log,
	}
}

func (m *MCPSource) into() any { return m }

func (m *MCPSource) check(wrong func(option, format string, args ...any)) {
	if _, err := mcp.New(m.Config("x", nil)); err != nil {
		option, text, _ := strings.Cut(err.Error(), ": ")
		wrong(option, "%s", text)
	}
}

// DefaultSources are the sources where the settings name none: a folder, and the store.
func DefaultSources(folder string) []Source {
	return []Source{
		{Name: "files", Kind: "files", Required: true, Options: &FilesSource{Folder: folder},
			At: "sources", Text: folder},
		{Name: "store", Kind: "store", Required: true, Options: &StoreSource{}, At: "sources"},
	}
}

// Merge configures services that several sources have.
type Merge struct {
	// Endpoints is unite (those of all sources) or shadow (those of the first source that has any).
	// Default unite.
	Endpoints string `yaml:"endpoints"`
}

func (s *Config) checkMerge(wrong func(setting, format string, args ...any)) {
	if m := s.Merge.Endpoints; m != "unite" && m != "shadow" {
		wrong("merge.endpoints", "%q: want unite or shadow", m)
	}
}

// readSources reads the list, if the file has one, and returns all errors.
func (s *Config) readSources() error {
	list := s.Sources
	switch {
	case list.IsZero() || list.Tag == "!!null":
		return nil
	case list.Kind != yaml.SequenceNode:
		return fmt.Errorf("%s: sources: want a list (- kind: files)", s.places.Of("sources"))
	case len(list.Content) == 0:
		return fmt.Errorf("%s: sources: the list is empty: leave it out to have %s and the store",
			s.places.Of("sources"), defaultFiles)
	}
	s.SourceList = nil
	var errs []error
	for i, n := range list.Content {
		src, err := s.readSource("sources["+strconv.Itoa(i)+"]", n)
		s.SourceList = append(s.SourceList, src)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readSource reads one source.
func (s *Config) readSource(at string, n *yaml.Node) (Source, error) {
	out := Source{Required: true, At: at,
		Place: fmt.Sprintf("%s:%d", s.places.File(), n.Line)}
	if n.Kind != yaml.MappingNode {
		return out, s.places.Section(at, n, &out)
	}
	var all []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; !slices.Contains(commonOptions(), name) {
			all = append(all, name)
		}
	}
	if err := s.places.Section(at, n, &out, all...); err != nil {
		return out, err
	}
	options, known := sourceKinds()[out.Kind]
	if !known {
		kinds := slices.Sorted(maps.Keys(sourceKinds()))
		return out, fmt.Errorf("%s:%d: %s.kind: %q is no kind of source: want one of %s", s.places.File(), n.Line, at,
			out.Kind, strings.Join(kinds, ", "))
	}
	if out.Name == "" {
		out.Name = out.Kind
	}
	out.Options, out.Text, out.Place = options(), canonical(n), s.places.Of(at)
	return out, s.places.Section(at, n, out.Options.into(), commonOptions()...)
}

// canonical returns a part of a file without comments and style, for comparison.
func canonical(n *yaml.Node) string {
	var v any
	if err := n.Decode(&v); err != nil {
		return n.Value
	}
	b, err := yaml.Marshal(v)
	if err != nil {
		return n.Value
	}
	return string(b)
}

// longestSourceName is how many letters the name of a source may have.
const longestSourceName = 63

// sourceName reports whether s is a valid name of a source. It is in logs and tables, is a label of
// metrics, and the key of saved content.
func sourceName(s string) bool {
	foreign := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}
	return s != "" && len(s) <= longestSourceName && strings.IndexFunc(s, foreign) < 0
}

// checkSources checks the sources and that their names are unique.
func (s *Config) checkSources(wrong func(setting, format string, args ...any)) {
	names, folders, targets := map[string]bool{}, map[string]bool{}, map[string]bool{}
	store := "" // the first one
	for _, src := range s.SourceList {
		if src.Options == nil {
			continue // reported when it was read
		}
		if _, ok := src.Options.(*StoreSource); ok && store != "" {
			wrong(src.At+".kind", "there is one store only: %s is it; remove one of the two", store)
			continue
		} else if ok {
			store = src.At
		}
		if names[src.Name] {
			wrong(src.At+".name", "%q is there twice: give each source a name of its own", src.Name)
		}
		names[src.Name] = true
		if !sourceName(src.Name) {
			wrong(src.At+".name", "%q: want 1 to %d letters of a to z, A to Z, digits, '-', '_' and '.'", src.Name,
				longestSourceName)
		}
		src.checkAge(s.Store.Kind, wrong)
		src.Options.check(func(option, format string, args ...any) { wrong(src.At+"."+option, format, args...) })
		if c, ok := src.Options.(*ConsulSource); ok && c.Export.Owner != "" {
			if at := c.Address + " " + c.Export.Owner; targets[at] {
				wrong(src.At+".export.owner", "%q is that of another source with this address: one of them is enough",
					c.Export.Owner)
			} else {
				targets[at] = true
			}
		}
		f, ok := src.Options.(*FilesSource)
		if !ok || f.Folder == "" {
			continue
		}
		if folders[absolute(f.Folder)] {
			wrong(src.At+".folder", "%s is there twice", f.Folder)
		}
		folders[absolute(f.Folder)] = true
		if inside(s.State, f.Folder) || inside(f.Folder, s.State) {
			wrong("state", "%s and the folder of configuration, %s, contain one another: choose separate folders",
				s.State, f.Folder)
		}
	}
}

// leastAge is the shortest maxAge, because a source that reconnects is down for a moment.
const leastAge = time.Minute

// checkAge rejects a MaxAge that has no effect or does harm. store is the kind of the store.
func (s *Source) checkAge(store string, wrong func(setting, format string, args ...any)) {
	_, files := s.Options.(*FilesSource)
	_, stored := s.Options.(*StoreSource)
	if files || stored && store == StoreBolt {
		if s.MaxAge > 0 {
			wrong(s.At+".maxAge", "a source of the kind %s is on this machine and has no age: remove maxAge", s.Kind)
		}
		return
	}
	if s.MaxAge != 0 && s.MaxAge < leastAge {
		wrong(s.At+".maxAge", "%v: want 1m or more, or 0s for any age: with less, a reconnect counts as an outage",
			s.MaxAge)
	}
}

// Wrap adds the place of the source to an error.
func (s *Source) Wrap(err error) error {
	if s.Place == "" {
		return fmt.Errorf("source %q: %w", s.Name, err)
	}
	return fmt.Errorf("%s: %s: source %q: %w", s.Place, s.At, s.Name, err)
}
