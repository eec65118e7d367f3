package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
)

// Assembler is implemented by push.Assembler.
type Assembler interface {
	Status(context.Context) (push.Status, error)
	Problems(context.Context) ([]feed.Problem, error)
	Supplied(context.Context, registry.Key) (registry.Joined, bool, error)
	AcceptRemovals(ctx context.Context, source string) (removed int, err error)
}

// assemblerTimeout is how long the assembler may take to answer.
const assemblerTimeout = 5 * time.Second

// state is the status of the assembler; empty while it does not answer, as before it runs.
func (a *API) state() push.Status {
	ctx, cancel := context.WithTimeout(context.Background(), assemblerTimeout)
	defer cancel()
	s, err := a.Assembler.Status(ctx)
	if err != nil {
		return push.Status{Waiting: []string{"the assembler does not answer"}}
	}
	return s
}

// SourceProblems returns the problems of sources, and marks invalid policies of which no older
// version is enforced. Errors: the assembler does not answer.
func (a *API) SourceProblems() ([]feed.Problem, error) {
	ctx, cancel := context.WithTimeout(context.Background(), assemblerTimeout)
	defer cancel()
	problems, err := a.Assembler.Problems(ctx)
	c := a.Published()
	for i := range problems {
		p := &problems[i]
		k := config.ParseKey(p.Object)
		info, _ := config.Info(k.Kind)
		if info.Protects && p.IsError() && (c == nil || c.Inputs().Objects.At(k) == nil) {
			p.Text += "; nothing enforces it"
		}
	}
	return problems, err
}

// folder returns the folder of a source of files; empty for others.
func (a *API) folder(source string) string {
	s, _ := a.Settings.Source(source)
	if o, ok := s.Options.(*settings.FilesSource); ok {
		return o.Folder
	}
	return ""
}

// file returns how to show a file of a source: with the whole path unless there is only one folder.
func (a *API) file(source, file string) string {
	folders := 0
	for _, s := range a.Settings.SourceList {
		if s.Kind == "files" {
			folders++
		}
	}
	folder := a.folder(source)
	if folder == "" || file == "" || filepath.IsAbs(file) || folders == 1 {
		return file
	}
	return filepath.Join(folder, file)
}

// Problems returns all problems, and what proxies rejected.
func (a *API) Problems(context.Context, admin.None) ([]feed.Problem, error) {
	return append(a.problems(), a.rejected()...), nil
}

// problems returns those of the settings, of the sources, then of other parts.
func (a *API) problems() []feed.Problem {
	out := append([]feed.Problem{}, a.Settings.Warnings...)
	problems, err := a.SourceProblems()
	if err != nil {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "ashored",
			Text: "the problems of sources are not known: " + err.Error()})
	}
	out = append(out, problems...)
	for _, f := range a.More {
		out = append(out, f()...)
	}
	for i := range out {
		out[i].File = a.file(out[i].Source, out[i].File)
	}
	return out
}

// Waiting names what serving waits for; empty when proxies are served.
func (a *API) Waiting() []string {
	if a.Published() != nil {
		return nil
	}
	out := []string{"the first build"}
	for _, name := range a.state().Waiting {
		if s, known := a.Settings.Source(name); known {
			name += " (setting " + s.At + ".required)"
		}
		out = append(out, name)
	}
	return out
}

// Version returns which build this is.
func (a *API) Version(context.Context, admin.None) (admin.Version, error) { return build.Read(), nil }

// Status returns the state of ashored and of every proxy.
func (a *API) Status(context.Context, admin.None) (admin.Status, error) {
	s := a.Summary()
	s.Proxies = a.proxies()
	rejected := a.rejected()
	s.Config.Errors += feed.Errors(rejected)
	s.Config.Warnings += len(rejected) - feed.Errors(rejected)
	return s, nil
}

// Summary is a Status without proxies and what they rejected, for metrics.
func (a *API) Summary() admin.Status {
	st := a.state()
	s := admin.Status{Version: build.Read(), Started: a.Started, Waiting: a.Waiting(), Sources: st.Sources,
		Config: counts(a.Published()), Prometheus: a.Settings.Metrics.Prometheus}
	s.Ready = len(s.Waiting) == 0
	for i := range s.Sources {
		s.Sources[i].Folder = a.folder(s.Sources[i].Name)
	}
	s.Config.Contexts, s.Config.Conflicts = st.Builds, st.Conflicts
	problems := a.problems()
	s.Config.Errors = feed.Errors(problems)
	s.Config.Warnings = len(problems) - s.Config.Errors
	return s
}

// counts counts what a context contains. It may be nil.
func counts(c *push.Context) admin.ConfigStatus {
	s := admin.ConfigStatus{Objects: map[string]int{}}
	if c == nil {
		return s
	}
	in := c.Inputs()
	s.Services = in.Services.Len()
	for k := range in.Objects.All() {
		s.Objects[string(k.Kind)]++
	}
	for _, l := range in.Endpoints.All() {
		s.Endpoints += l.Len()
	}
	return s
}

// Objects returns active objects, or those of the store. Errors: admin.ErrInvalid for the kind,
// admin.ErrNotFound for one name.
func (a *API) Objects(ctx context.Context, q admin.ObjectQuery) ([]admin.Object, error) {
	info, err := config.KindNamed(q.Kind)
	if err != nil {
		return nil, invalid("%v", err)
	}
	var list []*config.Object
	if q.Store {
		list, err = a.Store.List(ctx, info.Kind, q.Namespace)
	} else {
		list = a.active(info.Kind)
	}
	if err != nil {
		return nil, err
	}
	out := []admin.Object{}
	for _, o := range list {
		if q.Namespace != "" && q.Namespace != o.Namespace || q.Name != "" && q.Name != o.Name {
			continue
		}
		spec, err := protojson.Marshal(o.Spec)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", o.Key, err)
		}
		out = append(out, admin.Object{
			APIVersion: info.APIVersion(), Kind: string(o.Kind), Spec: spec, Origin: a.origin(o),
			Metadata: admin.Metadata{Name: o.Name, Namespace: o.Namespace, Labels: o.Labels, Annotations: o.Annotations,
				Created: o.Created},
		})
	}
	if q.Name == "" || len(out) > 0 {
		return out, nil
	}
	key := config.Key{Kind: info.Kind, Namespace: q.Namespace, Name: q.Name}
	if place := a.definedAt(key); q.Store && place != "" {
		return nil, notFound("%s is not in the store. %s defines it: change it there", key, place)
	}
	return nil, notFound("there is no %s %q: \"ashorectl get %s\" lists what there is, and "+
		"\"ashorectl problems\" why an object is not active", info.Kind, path.Join(q.Namespace, q.Name), info.Kind)
}

// active are the objects of a kind that are in use: what operators wrote, and workloads that
// registered themselves under names that no operator used.
func (a *API) active(kind config.Kind) (out []*config.Object) {
	c := a.Published()
	if c == nil {
		return nil
	}
	all := c.Inputs().Objects
	if kind == config.WorkloadEntry {
		for key, o := range a.Entries().All() {
			if all.At(key) == nil {
				all = all.With(key, o)
			}
		}
	}
	for key, o := range all.From(config.Key{Kind: kind}) {
		if key.Kind != kind {
			break
		}
		out = append(out, o)
	}
	return out
}

// origin is where an object was read.
func (a *API) origin(o *config.Object) admin.Origin {
	at := o.Origin
	return admin.Origin{Source: at.Source, File: a.file(at.Source, at.File), Line: at.Line, Revision: o.Revision}
}

// Dump returns what a proxy is sent, and records that in the audit log. Errors: admin.ErrNotFound.
func (a *API) Dump(ctx context.Context, q admin.DumpRequest) (admin.Dump, error) {
	out := admin.Dump{Proxy: q.Proxy}
	types, err := a.resources(ctx, q.Proxy, cmp.Or(q.Type, "all"))
	if err != nil {
		return out, err
	}
	for _, t := range types {
		if q.Type != "" && shortType(t.TypeURL) != strings.ToLower(q.Type) {
			continue
		}
		shown, err := dumpOf(t)
		if err != nil {
			return out, err
		}
		out.Types = append(out.Types, shown)
	}
	if len(out.Types) == 0 {
		err = notFound("%s does not subscribe to %s: \"ashorectl proxy-status %s\" lists its types",
			q.Proxy, cmp.Or(q.Type, "anything"), q.Proxy)
	}
	return out, err
}

// resources returns what a proxy is sent, and records in the audit log for what. Errors:
// admin.ErrNotFound.
func (a *API) resources(ctx context.Context, proxy, what string) ([]xds.TypeDump, error) {
	types, err := a.Resources(proxy)
	if err != nil {
		err = notFound("%v: \"ashorectl status\" lists them", err)
	}
	a.record(ctx, audit.DumpRead, proxy, err, "type", what)
	return types, err
}
