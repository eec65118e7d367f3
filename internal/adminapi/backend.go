package adminapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// connectedProxies are the proxies of an xDS server.
type connectedProxies interface {
	// Status returns every connected proxy, by ID.
	Status() []admin.ProxyStatus
	// Dump returns the resources of a proxy, with the bodies in JSON. Errors: admin.ErrNotFound.
	Dump(id string) (admin.Dump, error)
}

// assembler reports the state of the sources.
type assembler interface {
	Status(context.Context) (push.Status, error)
	Problems(context.Context) ([]feed.Problem, error)
}

// SourceNames translates names of sources for operators.
type SourceNames interface {
	// Setting returns the name of a source in the settings, or its own name.
	Setting(source string) string
	// Folder returns the folder of a source of files; empty for others.
	Folder(source string) string
	// Text returns a text that names sources by their names in the settings.
	Text(text string) string
	// File returns how to show a file of a source.
	File(source, file string) string
	// Awaited describes a source that serving waits for, with the setting that says so.
	Awaited(source string) string
}

// Backend implements admin.Backend. The fields are set before use. Safe for concurrent use.
type Backend struct {
	Started   time.Time
	Settings  []feed.Problem // warnings about the settings file
	Published *Published
	Assembler assembler
	Proxies   connectedProxies
	Names     SourceNames
	// Entries returns the WorkloadEntries of workloads that registered themselves.
	Entries func() entry.Entries
	// More returns the problems of other parts.
	More []func() []feed.Problem
}

// assemblerTimeout is how long the assembler may take to answer.
const assemblerTimeout = 5 * time.Second

// state is the status of the assembler; empty while it does not answer, as before it runs.
func (b *Backend) state() push.Status {
	ctx, cancel := context.WithTimeout(context.Background(), assemblerTimeout)
	defer cancel()
	s, err := b.Assembler.Status(ctx)
	if err != nil {
		return push.Status{Waiting: []string{"the assembler does not answer"}}
	}
	return s
}

// SourceProblems returns the problems of sources, or that the assembler does not answer.
func (b *Backend) SourceProblems() []feed.Problem {
	problems, err := b.ReadSourceProblems()
	if err != nil {
		return []feed.Problem{{Severity: feed.Warning, Source: "ashored",
			Text: "the problems of sources are not known: " + err.Error()}}
	}
	return problems
}

// ReadSourceProblems returns the problems of sources. Errors: the assembler does not answer.
func (b *Backend) ReadSourceProblems() ([]feed.Problem, error) {
	ctx, cancel := context.WithTimeout(context.Background(), assemblerTimeout)
	defer cancel()
	problems, err := b.Assembler.Problems(ctx)
	return b.unenforced(problems), err
}

// unenforced marks invalid policies of which no older version is enforced.
func (b *Backend) unenforced(problems []feed.Problem) []feed.Problem {
	for i := range problems {
		p := &problems[i]
		k := config.ParseKey(p.Object)
		if info, known := config.Info(k.Kind); known && info.Protects && p.IsError() && !b.inUse(k) {
			p.Text += "; nothing enforces it"
		}
	}
	return problems
}

// Sources returns the sources of objects and services, the most important first.
func (b *Backend) Sources() []feed.SourceStatus { return b.state().Sources }

// named adds the names and folders in the settings.
func (b *Backend) named(all []feed.SourceStatus) []feed.SourceStatus {
	for i := range all {
		if name := b.Names.Setting(all[i].Name); name != all[i].Name {
			all[i].Setting = name
		}
		all[i].Folder = b.Names.Folder(all[i].Name)
	}
	return all
}

// Version implements admin.Backend.
func (b *Backend) Version() admin.Version { return build.Read() }

// Problems implements admin.Backend: those of the settings, of the sources, then of other parts.
func (b *Backend) Problems() []feed.Problem {
	out := append([]feed.Problem{}, b.Settings...)
	out = append(out, b.SourceProblems()...)
	for _, f := range b.More {
		out = append(out, f()...)
	}
	for i := range out {
		out[i].File = b.Names.File(out[i].Source, out[i].File)
		out[i].Text = b.Names.Text(out[i].Text)
	}
	return out
}

// inUse says that the latest context has an object.
func (b *Backend) inUse(k config.Key) bool {
	c := b.Published.Context()
	if c == nil {
		return false
	}
	_, found := c.Inputs().Objects.Get(k)
	return found
}

// Waiting names what serving waits for; empty when proxies are served.
func (b *Backend) Waiting() []string {
	if b.Published.Context() != nil {
		return nil
	}
	out := []string{"the first build"}
	for _, name := range b.state().Waiting {
		out = append(out, b.Names.Awaited(name))
	}
	return out
}

// Status implements admin.Backend.
func (b *Backend) Status() admin.Status {
	s := b.Summary()
	s.Proxies = b.Proxies.Status()
	return s
}

// Summary is a Status without proxies, for metrics.
func (b *Backend) Summary() admin.Status {
	a := b.state()
	s := admin.Status{Version: build.Read(), Started: b.Started, Waiting: b.Waiting(), Sources: b.named(a.Sources)}
	s.Ready = len(s.Waiting) == 0
	s.Config = b.Published.latest.Load().counts()
	s.Config.Conflicts = a.Conflicts
	problems := b.Problems()
	s.Config.Errors = feed.Errors(problems)
	s.Config.Warnings = len(problems) - s.Config.Errors
	return s
}

// Objects implements admin.Backend.
func (b *Backend) Objects(kind, namespace, name string) ([]admin.Object, error) {
	info, err := kindNamed(kind)
	if err != nil {
		return nil, err
	}
	if !info.Supported {
		return nil, admin.NewError(admin.ErrInvalid, fmt.Sprintf("%s is not supported yet: there are none", info.Kind))
	}
	out := []admin.Object{}
	for key, o := range b.objects(info.Kind).From(config.Key{Kind: info.Kind}) {
		if key.Kind != info.Kind {
			break
		}
		if namespace != "" && namespace != key.Namespace || name != "" && name != key.Name {
			continue
		}
		shown, err := objectOf(o, info)
		if err != nil {
			return nil, err
		}
		shown.Origin.File = b.Names.File(o.Origin.Source, o.Origin.File)
		out = append(out, shown)
	}
	if name != "" && len(out) == 0 {
		return nil, admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("no %s %q is in use; \"ashorectl problems\" says why when a file defines it", info.Kind,
				strings.TrimPrefix(namespace+"/"+name, "/")))
	}
	return out, nil
}

// objects is everything of a kind that is in use, and more of other kinds: what operators wrote,
// and workloads that registered themselves under names that no operator used.
func (b *Backend) objects(kind config.Kind) push.Objects {
	c := b.Published.Context()
	if c == nil {
		return push.Objects{}
	}
	all := c.Inputs().Objects
	if kind != config.WorkloadEntry {
		return all
	}
	for key, o := range b.Entries().All() {
		if all.At(key) == nil {
			all = all.With(key, o)
		}
	}
	return all
}

// objectOf is an object as operators write it.
func objectOf(o *config.Object, info config.KindInfo) (admin.Object, error) {
	spec, err := protojson.Marshal(o.Spec)
	if err != nil {
		return admin.Object{}, fmt.Errorf("show %s: %w", o.Key, err)
	}
	return admin.Object{
		APIVersion: info.APIVersion(),
		Kind:       string(o.Kind),
		Metadata: admin.Metadata{Name: o.Name, Namespace: o.Namespace, Labels: o.Labels, Annotations: o.Annotations,
			Created: o.Created},
		Spec: json.RawMessage(spec),
		Origin: admin.Origin{Source: o.Origin.Source, File: o.Origin.File, Line: o.Origin.Line,
			Revision: o.Revision},
	}, nil
}

// Dump implements admin.Backend.
func (b *Backend) Dump(proxy, typ string) (admin.Dump, error) {
	d, err := b.Proxies.Dump(proxy)
	if err != nil || typ == "" {
		return d, err
	}
	var known []string
	for _, t := range d.Types {
		if t.Type == strings.ToLower(typ) {
			d.Types = []admin.DumpType{t}
			return d, nil
		}
		known = append(known, t.Type)
	}
	slices.SortFunc(known, cmp.Compare)
	return admin.Dump{}, notAsked(proxy, strings.ToLower(typ), strings.Join(known, ", "))
}

// notAsked is the error for a type that a proxy did not ask for; asked are those that it did.
func notAsked(proxy, typ, asked string) error {
	switch typ {
	case "cds", "eds", "lds", "rds", "sds", "ecds":
		return admin.NewError(admin.ErrNotFound, fmt.Sprintf("%s is sent no %s: it asked for %s alone", proxy, typ,
			asked))
	case "pcds", "probe":
		return admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("%s is sent no %s: Envoy itself never asks for it, the agents of workloads with an identity do; it asked for %s", proxy, typ, asked))
	case "nds":
		return admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("%s is sent no nds, the table of names: Envoy itself never asks for it, clients that answer DNS do, as Istio's agent; it asked for %s", proxy, asked))
	default:
		return admin.NewError(admin.ErrInvalid,
			fmt.Sprintf("%q is not a type: want cds, eds, lds, rds, sds, ecds, nds, pcds or probe; %s asked for %s",
				typ, proxy, asked))
	}
}
