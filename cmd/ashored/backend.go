package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// proxies is what the backend needs of the xDS server.
type proxies interface {
	// status is every connected proxy, by ID.
	status() []admin.ProxyStatus
	// dump is what a proxy is sent, the bodies in JSON. Errors: admin.ErrNotFound.
	dump(id string) (admin.Dump, error)
}

// assembler is what the backend needs of the push.Assembler.
type assembler interface {
	Status(context.Context) (push.Status, error)
	Problems(context.Context) ([]feed.Problem, error)
}

// assemblerTimeout is how long the assembler may take to answer.
const assemblerTimeout = 5 * time.Second

// published is a context that proxies are served from.
type published struct {
	context *push.Context
	at      time.Time
	number  uint64
	// counts counts what the context holds, once when it is first asked for. Not to be changed.
	counts func() admin.ConfigStatus
}

// backend answers operators from the parts of the program. Safe for concurrent use.
type backend struct {
	started   time.Time
	settings  []feed.Problem // warnings about the settings file
	assembler assembler
	proxies   proxies
	// entries are the WorkloadEntries of workloads that registered themselves; nil: nobody does.
	entries func() entry.Entries
	// refused are the parts of what proxies are sent that Envoy would refuse and that refuse
	// traffic instead; nil: none.
	refused func() []feed.Problem
	// setting is the name that a source has among the settings, and its own where it stands in
	// none; nil: none does.
	setting func(source string) string
	// file is what people call a file of a source; nil: what the source calls it.
	file func(source, file string) string
	// more are the problems of other parts.
	more []func() []feed.Problem
	// waited is a source that is waited for, with the setting that says so; nil: its name will do.
	waited func(name string) string
	// anew has them be looked for anew, as far as they were remembered; nil: they were not.
	anew func()

	// analysis looks for what is wrong between the objects of the latest context; nil: nothing
	// does.
	analysis *analyze.Background

	latest atomic.Pointer[published]
	bell   bell // rings when latest is another
}

// watch adds the problems and metrics of other parts; id may be nil. Errors: a metric that is
// registered already.
func (b *backend) watch(id *identity, keys keySource, r prometheus.Registerer) error {
	b.more = append(b.more, keys.problems)
	if err := r.Register(keys.metric()); err != nil || id == nil {
		return err
	}
	c := newCheckup(id)
	b.more, b.anew = append(b.more, c.problems), c.forget
	return r.Register(c)
}

// publish remembers the latest context and says whether it is the first.
func (b *backend) publish(c *push.Context) (first bool) {
	next := &published{context: c, at: time.Now(), number: 1}
	next.counts = sync.OnceValue(next.count)
	if last := b.latest.Load(); last != nil {
		next.number = last.number + 1
	}
	b.latest.Store(next)
	if b.analysis != nil {
		b.analysis.Publish(c)
	}
	b.bell.ring()
	return next.number == 1
}

// context is the latest that was published; nil before the first.
func (b *backend) context() *push.Context {
	if p := b.latest.Load(); p != nil {
		return p.context
	}
	return nil
}

// state is the status of the assembler; empty while it does not answer, as before it runs.
func (b *backend) state() push.Status {
	ctx, cancel := context.WithTimeout(context.Background(), assemblerTimeout)
	defer cancel()
	s, err := b.assembler.Status(ctx)
	if err != nil {
		return push.Status{Waiting: []string{"the assembler does not answer"}}
	}
	return s
}

// sourceProblems are those that the assembler knows, or that it does not answer.
func (b *backend) sourceProblems() []feed.Problem {
	problems, err := b.readSourceProblems()
	if err != nil {
		return []feed.Problem{{Severity: feed.Warning, Source: "ashored",
			Text: "the problems of sources are not known: " + err.Error()}}
	}
	return problems
}

// readSourceProblems asks the assembler for its problems. Errors: it does not answer.
func (b *backend) readSourceProblems() ([]feed.Problem, error) {
	ctx, cancel := context.WithTimeout(context.Background(), assemblerTimeout)
	defer cancel()
	problems, err := b.assembler.Problems(ctx)
	return b.unenforced(problems), err
}

// unenforced says of policies that are invalid whether an older version of them is enforced.
func (b *backend) unenforced(problems []feed.Problem) []feed.Problem {
	for i := range problems {
		p := &problems[i]
		k := config.ParseKey(p.Object)
		if info, known := config.Info(k.Kind); known && info.Protects && p.IsError() && !b.inUse(k) {
			p.Text += "; nothing enforces it"
		}
	}
	return problems
}

// sources are those that supply objects and services, the most important first.
func (b *backend) sources() []feed.SourceStatus { return b.named(b.state().Sources) }

// named adds what sources are called among the settings.
func (b *backend) named(all []feed.SourceStatus) []feed.SourceStatus {
	if b.setting == nil {
		return all
	}
	for i := range all {
		if name := b.setting(all[i].Name); name != all[i].Name {
			all[i].Setting = name
		}
	}
	return all
}

// Version implements admin.Backend.
func (b *backend) Version() admin.Version { return build.Read() }

// Problems implements admin.Backend. What is over is not told any more: who asks may just have
// mended it.
func (b *backend) Problems() []feed.Problem {
	if b.anew != nil {
		b.anew()
	}
	return b.problems()
}

// problems is what is wrong with the settings, then with the configuration, then between the parts
// of the latest context; never nil.
func (b *backend) problems() []feed.Problem {
	out := append([]feed.Problem{}, b.settings...)
	out = append(out, b.sourceProblems()...)
	if b.analysis != nil {
		out = append(out, analyze.Problems(b.analysis.Findings())...)
	}
	if b.refused != nil {
		out = append(out, b.refused()...)
	}
	for _, f := range b.more {
		out = append(out, f()...)
	}
	if b.file != nil {
		for i := range out {
			out[i].File = b.file(out[i].Source, out[i].File)
		}
	}
	return out
}

// inUse says that the latest context has an object.
func (b *backend) inUse(k config.Key) bool {
	c := b.context()
	if c == nil {
		return false
	}
	_, found := c.Inputs().Objects.Get(k)
	return found
}

// waiting names what proxies still wait for; empty when they are served.
func (b *backend) waiting() []string {
	if b.latest.Load() != nil {
		return nil
	}
	out := []string{"the first build"}
	for _, name := range b.state().Waiting {
		if b.waited != nil {
			name = b.waited(name)
		}
		out = append(out, name)
	}
	return out
}

// Status implements admin.Backend.
func (b *backend) Status() admin.Status {
	s := b.summary()
	s.Proxies = b.proxies.status()
	return s
}

// summary is a Status without proxies. The more that there is, the more it costs once for each
// context, and not each time: metrics are taken from it.
func (b *backend) summary() admin.Status {
	a := b.state()
	s := admin.Status{Version: build.Read(), Started: b.started, Waiting: b.waiting(), Sources: b.named(a.Sources)}
	s.Ready = len(s.Waiting) == 0
	s.Config = admin.ConfigStatus{Objects: map[string]int{}}
	if p := b.latest.Load(); p != nil {
		s.Config = p.counts()
	}
	s.Config.Conflicts = a.Conflicts
	problems := b.problems()
	s.Config.Errors = feed.Errors(problems)
	s.Config.Warnings = len(problems) - s.Config.Errors
	return s
}

// count counts what the context holds.
func (p *published) count() admin.ConfigStatus {
	s := admin.ConfigStatus{Objects: map[string]int{}, Built: p.at, Contexts: p.number}
	in := p.context.Inputs()
	s.Services = in.Services.Len()
	for k := range in.Objects.All() {
		s.Objects[string(k.Kind)]++
	}
	for _, l := range in.Endpoints.All() {
		s.Endpoints += l.Len()
	}
	return s
}

// Objects implements admin.Backend.
func (b *backend) Objects(kind, namespace, name string) ([]admin.Object, error) {
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
		if b.file != nil {
			shown.Origin.File = b.file(o.Origin.Source, o.Origin.File)
		}
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
func (b *backend) objects(kind config.Kind) push.Objects {
	p := b.latest.Load()
	if p == nil {
		return push.Objects{}
	}
	all := p.context.Inputs().Objects
	if kind != config.WorkloadEntry || b.entries == nil {
		return all
	}
	for key, o := range b.entries().All() {
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
func (b *backend) Dump(proxy, typ string) (admin.Dump, error) {
	d, err := b.proxies.dump(proxy)
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
