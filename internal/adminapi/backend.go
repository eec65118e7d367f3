package adminapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds"
)

// assembler reports the state of the sources.
type assembler interface {
	Status(context.Context) (push.Status, error)
	Problems(context.Context) ([]feed.Problem, error)
}

// SourceNames shows operators where sources and their files are.
type SourceNames interface {
	// Folder returns the folder of a source of files; empty for others.
	Folder(source string) string
	// File returns how to show a file of a source.
	File(source, file string) string
	// Awaited describes a source that serving waits for, with the setting that says so.
	Awaited(source string) string
}

// Backend answers about the state of ashored, its configuration and its proxies. The fields are set
// before use. Safe for concurrent use.
type Backend struct {
	Started   time.Time
	Settings  []feed.Problem // warnings about the settings file
	Published *Published
	Assembler assembler
	// Connected returns the connected proxies by ID, and Resources what one is sent.
	Connected func() []xds.ProxyStatus
	Resources func(id string) ([]xds.TypeDump, error)
	Names     SourceNames
	// Entries returns the WorkloadEntries of workloads that registered themselves.
	Entries func() entry.Entries
	// More returns the problems of other parts.
	More   []func() []feed.Problem
	Record func(audit.Event)
	Log    hclog.Logger
}

// Routes returns the routes of the calls that b answers.
func (b *Backend) Routes() []admin.Route {
	return []admin.Route{
		admin.Handle(admin.CallVersion, admin.Viewer, func(context.Context, admin.None) (admin.Version, error) {
			return build.Read(), nil
		}),
		admin.Handle(admin.CallStatus, admin.Viewer, func(context.Context, admin.None) (admin.Status, error) {
			return b.Status(), nil
		}),
		admin.Handle(admin.CallProblems, admin.Viewer, func(context.Context, admin.None) ([]feed.Problem, error) {
			return b.Problems(), nil
		}),
		admin.Handle(admin.CallObjects, admin.Viewer, b.Objects),
		admin.Handle(admin.CallDump, admin.Operator, b.Dump),
	}
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

// located adds the folders of sources.
func (b *Backend) located(all []feed.SourceStatus) []feed.SourceStatus {
	for i := range all {
		all[i].Folder = b.Names.Folder(all[i].Name)
	}
	return all
}

// Problems returns all problems: those of the settings, of the sources, then of other parts.
func (b *Backend) Problems() []feed.Problem {
	out := append([]feed.Problem{}, b.Settings...)
	out = append(out, b.SourceProblems()...)
	for _, f := range b.More {
		out = append(out, f()...)
	}
	for i := range out {
		out[i].File = b.Names.File(out[i].Source, out[i].File)
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

// Status returns the state of ashored and of every proxy.
func (b *Backend) Status() admin.Status {
	s := b.Summary()
	s.Proxies = proxyList(b.Connected())
	return s
}

// Summary is a Status without proxies, for metrics.
func (b *Backend) Summary() admin.Status {
	a := b.state()
	s := admin.Status{Version: build.Read(), Started: b.Started, Waiting: b.Waiting(), Sources: b.located(a.Sources)}
	s.Ready = len(s.Waiting) == 0
	s.Config = b.Published.latest.Load().counts()
	s.Config.Conflicts = a.Conflicts
	problems := b.Problems()
	s.Config.Errors = feed.Errors(problems)
	s.Config.Warnings = len(problems) - s.Config.Errors
	return s
}

// Objects returns active objects. Errors: admin.ErrInvalid for the kind, admin.ErrNotFound for one
// name.
func (b *Backend) Objects(_ context.Context, q admin.ObjectQuery) ([]admin.Object, error) {
	info, err := kindNamed(q.Kind)
	if err != nil {
		return nil, err
	}
	if !info.Supported {
		return nil, admin.NewError(admin.ErrInvalid, "%s is not supported yet: there are none", info.Kind)
	}
	out := []admin.Object{}
	for key, o := range b.objects(info.Kind).From(config.Key{Kind: info.Kind}) {
		if key.Kind != info.Kind {
			break
		}
		if !selects(q, key) {
			continue
		}
		shown, err := objectOf(o)
		if err != nil {
			return nil, err
		}
		shown.Origin.File = b.Names.File(o.Origin.Source, o.Origin.File)
		out = append(out, shown)
	}
	if q.Name != "" && len(out) == 0 {
		return nil, admin.NewError(admin.ErrNotFound,
			"no %s %q is in use; \"ashorectl problems\" says why when a file defines it", info.Kind,
			joined(q.Namespace, q.Name))
	}
	return out, nil
}

// selects says that an object of the kind is one that q selects.
func selects(q admin.ObjectQuery, k config.Key) bool {
	return (q.Namespace == "" || q.Namespace == k.Namespace) && (q.Name == "" || q.Name == k.Name)
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
func objectOf(o *config.Object) (admin.Object, error) {
	info, _ := config.Info(o.Kind) // no source has others
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

// Dump returns what a proxy is sent, and records that in the audit log. Errors: admin.ErrNotFound.
func (b *Backend) Dump(ctx context.Context, q admin.DumpRequest) (admin.Dump, error) {
	out, err := b.dump(q)
	e := audit.Event{Action: audit.DumpRead, Actor: admin.Actor(ctx), Target: q.Proxy}
	if q.Type != "" {
		e.Details = map[string]string{"type": q.Type}
	}
	b.Log.Info("dump read", "proxy", q.Proxy, "type", q.Type, "by", e.Actor)
	recordOutcome(b.Record, e, err)
	return out, err
}

func (b *Backend) dump(q admin.DumpRequest) (admin.Dump, error) {
	types, err := b.Resources(q.Proxy)
	if err != nil {
		return admin.Dump{}, admin.NewError(admin.ErrNotFound, "%v: \"ashorectl status\" lists them", err)
	}
	out := admin.Dump{Proxy: q.Proxy}
	var sent []string
	for _, t := range types {
		short := shortType(t.TypeURL)
		sent = append(sent, short)
		if q.Type != "" && short != strings.ToLower(q.Type) {
			continue
		}
		shown, err := dumpOf(t)
		if err != nil {
			return admin.Dump{}, err
		}
		out.Types = append(out.Types, shown)
	}
	if q.Type != "" && len(out.Types) == 0 {
		slices.Sort(sent)
		return admin.Dump{}, admin.NewError(admin.ErrNotFound, "%s is sent no %s: it subscribes to %s alone", q.Proxy,
			q.Type, strings.Join(sent, ", "))
	}
	return out, nil
}

// recordOutcome takes an event to the audit log, with err as its outcome.
func recordOutcome(to func(audit.Event), e audit.Event, err error) {
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, err.Error()
	}
	to(e)
}
