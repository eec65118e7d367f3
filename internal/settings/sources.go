package settings

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/registry/consul"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// Kinds of sources that others refer to.
const storeKind, consulKind, kubernetesKind = "store", "consul", "kubernetes"

// Source is one source of configuration or services. Besides these it has the options of
// its kind.
type Source struct {
	// Name is for operators, and unique among the sources; see sourceName.
	// Default: the kind.
	Name string `yaml:"name"`
	// Kind is files, store, mcp, consul or kubernetes.
	Kind string `yaml:"kind"`
	// Required makes serving wait until it has delivered, or has content from before the restart.
	// Default true.
	Required bool `yaml:"required"`

	// Options are those of its kind: *FilesSource, *StoreSource, *MCPSource, *ConsulSource or
	// *KubernetesSource.
	Options sourceOptions
	At      string // its path in the settings, "sources[0]"
}

// ID names the source everywhere but in the settings: "files", "consul:dc1".
func (s Source) ID() string {
	if s.Name == s.Kind {
		return s.Kind
	}
	return s.Kind + ":" + s.Name
}

// Source returns the source with an ID; false: there is none.
func (s *Config) Source(id string) (Source, bool) {
	i := slices.IndexFunc(s.SourceList, func(src Source) bool { return src.ID() == id })
	if i < 0 {
		return Source{}, false
	}
	return s.SourceList[i], true
}

// sourceOptions are those of one kind of source.
type sourceOptions interface{ check(wrong report) }

// optionsOf returns the options of a kind of source, with the defaults; nil: there is no such kind.
func optionsOf(kind string) sourceOptions {
	switch kind {
	case "files":
		return &FilesSource{}
	case storeKind:
		return &StoreSource{}
	case "mcp":
		return &MCPSource{}
	case consulKind:
		return &ConsulSource{}
	case kubernetesKind:
		return &KubernetesSource{kube.DefaultOptions()}
	}
	return nil
}

// FilesSource is a folder of files.
type FilesSource struct {
	// Folder has YAML and JSON of Istio's API, with the folders below it.
	Folder string `yaml:"folder"`
}

func (f *FilesSource) check(wrong report) {
	if f.Folder == "" {
		wrong("folder", "empty: name a path")
	}
}

// StoreSource are the objects that ashorectl writes.
type StoreSource struct{}

func (*StoreSource) check(report) {}

// ConsulSource is a Consul.
type ConsulSource struct{ consul.Options }

func (c *ConsulSource) check(wrong report) { c.Check(wrong) }

// KubernetesSource is a cluster of Kubernetes.
type KubernetesSource struct{ kube.Options }

func (k *KubernetesSource) check(wrong report) { k.Check(wrong) }

// MCPSource is another control plane, or another server that speaks MCP over xDS.
type MCPSource struct{ mcp.Options }

func (m *MCPSource) check(wrong report) {
	if _, err := mcp.New(mcp.Config{Name: "mcp", Options: m.Options}); err != nil {
		option, text, _ := strings.Cut(err.Error(), ": ")
		wrong(option, "%s", text)
	}
}

// DefaultSources are the sources where the settings name none: a folder, and the store.
func DefaultSources(folder string) []Source {
	return []Source{
		{Name: "files", Kind: "files", Required: true, Options: &FilesSource{Folder: folder}, At: "sources"},
		{Name: storeKind, Kind: storeKind, Required: true, Options: &StoreSource{}, At: "sources"},
	}
}

// readSources reads the list, if the settings have one, and returns all errors.
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
	out := Source{Required: true, At: at}
	var kind struct {
		Kind string `yaml:"kind"`
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode || n.Decode(&kind) != nil {
		return out, s.places.Section(at, n, &out)
	}
	if out.Options = optionsOf(kind.Kind); out.Options == nil {
		return out, fmt.Errorf("%s:%d: %s.kind: %q is no kind of source: want consul, files, kubernetes, mcp or store",
			s.places.File(), n.Line, at, kind.Kind)
	}
	err := s.places.Section(at, n, &out, out.Options)
	out.Name = cmp.Or(out.Name, out.Kind)
	return out, err
}

// hasSource reports whether a source has that name and kind.
func (s *Config) hasSource(name, kind string) bool {
	return slices.ContainsFunc(s.SourceList, func(src Source) bool { return src.Name == name && src.Kind == kind })
}

// sourceName matches the name of a source. It is in logs and tables, is a label of metrics, and the
// key of saved content.
const sourceName = `^[a-zA-Z0-9._-]{1,63}$`

// checkSources checks the sources and that their names are unique.
func (s *Config) checkSources(wrong report) {
	valid := regexp.MustCompile(sourceName)
	names, exports, clusters := seen{}, seen{}, seen{}
	for _, src := range s.SourceList {
		option := func(option, format string, args ...any) { wrong(src.At+"."+option, format, args...) }
		switch {
		case names.again(src.Name):
			option("name", "%q is there twice: give each source a name of its own", src.Name)
		case !valid.MatchString(src.Name):
			option("name", "%q: want 1 to 63 letters of a to z, A to Z, digits, '-', '_' and '.'", src.Name)
		case src.Kind == storeKind && src.Name != storeKind:
			option("name", "%q: there is one store, and it has no other name: remove this", src.Name)
		}
		src.Options.check(option)
		switch o := src.Options.(type) {
		case *ConsulSource:
			if owner := o.Export.Owner; owner != "" && exports.again(o.Address+" "+owner) {
				option("export.owner", "%q is that of another source with this address: one of them is enough", owner)
			}
		case *KubernetesSource:
			if id := cmp.Or(o.Cluster, src.Name); clusters.again(id) {
				option("cluster", "%q is the ID of another cluster: give each cluster an ID of its own", id)
			}
		}
	}
}

// SourceNames returns the names of sources.
func SourceNames(list []Source) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.ID()
	}
	return out
}
