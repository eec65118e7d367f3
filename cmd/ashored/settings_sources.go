package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// sourceSettings is one source of configuration or services. Besides these it has the options of
// its kind.
type sourceSettings struct {
	// Name is for people, and tells sources of one kind apart; sourceName says what it may be.
	// Default: the kind.
	Name string `yaml:"name"`
	// Kind is what it is: one of sourceKinds.
	Kind string `yaml:"kind"`
	// Required says that serving waits until it has delivered, or has content from before the
	// restart. Default true.
	Required bool `yaml:"required"`
	// MaxAge is how long its items are used while it is down, leastAge or more. Default 0: without
	// limit.
	MaxAge time.Duration `yaml:"maxAge"`
	// WhenTooOld says what happens after MaxAge: keep reports it, drop stops using the items.
	// Default keep.
	WhenTooOld string `yaml:"whenTooOld"`

	options sourceOptions // of its kind
	at      string        // its path among the settings, "sources[0]"
	place   string        // where it stands, "ashored.yaml:3"; empty: in no file
	text    string        // all of it, equal for equal settings
}

// requiring names the setting by which the source is waited for.
func (s sourceSettings) requiring() string {
	if s.place == "" {
		return "setting sources"
	}
	return fmt.Sprintf("setting %s.required, %s", s.at, s.place)
}

// sourceOptions are those of one kind of source.
type sourceOptions interface {
	// into is the struct that takes them.
	into() any
	// check tells what is wrong with them.
	check(wrong func(option, format string, args ...any))
}

// sourceKinds are the kinds with their options, which hold the defaults.
func sourceKinds() map[string]func() sourceOptions {
	return map[string]func() sourceOptions{
		"files":  func() sourceOptions { return &filesSource{} },
		"store":  func() sourceOptions { return &storeSource{} },
		"mcp":    func() sourceOptions { return &mcpSource{} },
		"consul": func() sourceOptions { return &consulSource{} },
	}
}

// commonOptions are those of every source.
func commonOptions() []string { return []string{"name", "kind", "required", "maxAge", "whenTooOld"} }

// filesSource is a folder of files.
type filesSource struct {
	// Folder has YAML and JSON of Istio's API, with the folders below it.
	Folder string `yaml:"folder"`
	// FollowSymlinks has symbolic links be followed that lead out of the folder. Default false.
	FollowSymlinks bool `yaml:"followSymlinks"`
}

func (f *filesSource) into() any { return f }

func (f *filesSource) check(wrong func(option, format string, args ...any)) {
	if f.Folder == "" {
		wrong("folder", "empty: name a path")
	}
}

// storeSource are the objects that ashorectl writes.
type storeSource struct{}

func (s *storeSource) into() any { return s }

func (*storeSource) check(func(option, format string, args ...any)) {}

// defaultSources are the sources where the settings name none: a folder, and the store.
func defaultSources(folder string) []sourceSettings {
	return []sourceSettings{
		{Name: "files", Kind: "files", Required: true, WhenTooOld: "keep", options: &filesSource{Folder: folder},
			at: "sources", text: folder},
		{Name: "store", Kind: "store", Required: true, WhenTooOld: "keep", options: &storeSource{}, at: "sources"},
	}
}

// mergeSettings say how one service is made of what several sources supply.
type mergeSettings struct {
	// Endpoints is unite (those of all sources) or shadow (those of the first source that has any).
	// Default unite.
	Endpoints string `yaml:"endpoints"`
}

func (s *settings) checkMerge(wrong func(setting, format string, args ...any)) {
	if m := s.Merge.Endpoints; m != "unite" && m != "shadow" {
		wrong("merge.endpoints", "%q: want unite or shadow", m)
	}
}

// readSources reads the list, when the file has one, and tells everything that is wrong with it.
func (s *settings) readSources() error {
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
	s.sources = nil
	var errs []error
	for i, n := range list.Content {
		src, err := s.readSource("sources["+strconv.Itoa(i)+"]", n)
		s.sources = append(s.sources, src)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readSource reads one of the list.
func (s *settings) readSource(at string, n *yaml.Node) (sourceSettings, error) {
	out := sourceSettings{Required: true, WhenTooOld: "keep", at: at,
		place: fmt.Sprintf("%s:%d", s.places.File(), n.Line)}
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
	out.options, out.text, out.place = options(), canonical(n), s.places.Of(at)
	return out, s.places.Section(at, n, out.options.into(), commonOptions()...)
}

// canonical is a part of a file without comments and style, so that it is equal for equal settings.
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

// sourceName says whether a source may be called s: it stands in logs and tables, is a label of
// metrics, and the key of what is kept of the source.
func sourceName(s string) bool {
	foreign := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}
	return s != "" && len(s) <= longestSourceName && strings.IndexFunc(s, foreign) < 0
}

// checkSources checks what the sources say, and that they can be told apart.
func (s *settings) checkSources(wrong func(setting, format string, args ...any)) {
	names, folders, targets := map[string]bool{}, map[string]bool{}, map[string]bool{}
	store := "" // the first one
	for _, src := range s.sources {
		if src.options == nil {
			continue // told of when it was read
		}
		if _, ok := src.options.(*storeSource); ok && store != "" {
			wrong(src.at+".kind", "there is one store only: %s is it; remove one of the two", store)
			continue
		} else if ok {
			store = src.at
		}
		if names[src.Name] {
			wrong(src.at+".name", "%q is there twice: give each source a name of its own", src.Name)
		}
		names[src.Name] = true
		if !sourceName(src.Name) {
			wrong(src.at+".name", "%q: want 1 to %d letters of a to z, A to Z, digits, '-', '_' and '.'", src.Name,
				longestSourceName)
		}
		if src.WhenTooOld != "keep" && src.WhenTooOld != "drop" {
			wrong(src.at+".whenTooOld", "%q: want keep or drop", src.WhenTooOld)
		}
		src.checkAge(s.Store.Kind, wrong)
		src.options.check(func(option, format string, args ...any) { wrong(src.at+"."+option, format, args...) })
		if c, ok := src.options.(*consulSource); ok && c.Export.Owner != "" {
			if at := c.Address + " " + c.Export.Owner; targets[at] {
				wrong(src.at+".export.owner", "%q is that of another source with this address: one of them is enough",
					c.Export.Owner)
			} else {
				targets[at] = true
			}
		}
		f, ok := src.options.(*filesSource)
		if !ok || f.Folder == "" {
			continue
		}
		if folders[absolute(f.Folder)] {
			wrong(src.at+".folder", "%s is there twice", f.Folder)
		}
		folders[absolute(f.Folder)] = true
		if inside(s.State, f.Folder) || inside(f.Folder, s.State) {
			wrong("state", "%s and the folder of configuration, %s, lie in one another: keep the store apart from what operators write", s.State, f.Folder)
		}
	}
}

// leastAge is the shortest maxAge: a source that reconnects is down for a moment.
const leastAge = time.Minute

// checkAge refuses what would have no effect, or do harm; store is the kind of the store.
func (s *sourceSettings) checkAge(store string, wrong func(setting, format string, args ...any)) {
	_, files := s.options.(*filesSource)
	_, stored := s.options.(*storeSource)
	if files || stored && store == storeBolt {
		if s.MaxAge > 0 || s.WhenTooOld == "drop" {
			wrong(s.at+".maxAge", "a source of the kind %s is of this machine and has no age: remove maxAge and whenTooOld", s.Kind)
		}
		return
	}
	if s.MaxAge != 0 && s.MaxAge < leastAge {
		wrong(s.at+".maxAge", "%v: want 1m or more, or 0s for any age: with less, a reconnect counts as an outage",
			s.MaxAge)
	}
	if s.WhenTooOld == "drop" && s.MaxAge == 0 {
		wrong(s.at+".whenTooOld", "without maxAge nothing is ever too old: set maxAge, such as 24h, or remove this")
	}
}

// wrap is what is wrong with a source as a whole, with where it stands.
func (s *sourceSettings) wrap(err error) error {
	if s.place == "" {
		return fmt.Errorf("source %q: %w", s.Name, err)
	}
	return fmt.Errorf("%s: %s: source %q: %w", s.place, s.at, s.Name, err)
}
