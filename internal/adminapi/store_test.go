package adminapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/push"
)

// storeBench is a storekeeper and what it records.
type storeBench struct {
	*Store
	t      *testing.T
	events []audit.Event
}

// newBench makes one on a new, empty store.
type newBench func(t *testing.T) *storeBench

// onStore makes benches on stores that open opens.
func onStore(open func(testing.TB) meshStore) newBench {
	return func(t *testing.T) *storeBench {
		b := &storeBench{t: t}
		b.Store = newStorekeeper(open(t), func(e audit.Event) { b.events = append(b.events, e) })
		return b
	}
}

// What operators do and are told is the same whichever store it is.
func TestStores(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	for kind, open := range map[string]func(testing.TB) meshStore{"bolt": openBolt,
		"consul": func(t testing.TB) meshStore { return openConsul(t, agent) }} {
		for name, test := range map[string]func(*testing.T, newBench){
			"StoreApply":        testStoreApply,
			"StorePreview":      testStorePreview,
			"StoreRefuses":      testStoreRefuses,
			"StoreMany":         testStoreMany,
			"StoreAudit":        testStoreAudit,
			"StoreAt":           testStoreAt,
			"StoreRace":         testStoreRace,
			"StoreDelete":       testStoreDelete,
			"StoreRollback":     testStoreRollback,
			"StoreNotes":        testStoreNotes,
			"Stored":            testStored,
			"StoreRollbackRace": testStoreRollbackRace,
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				test(t, onStore(open))
			})
		}
	}
}

// serviceFile is the file of one service.
func serviceFile(name string) admin.Piece {
	return admin.Piece{File: name + ".yaml", Data: fmt.Appendf(nil, entryFile, name)}
}

// with is a file in which some text stands for another.
func with(p admin.Piece, old, now string) admin.Piece {
	p.Data = []byte(strings.ReplaceAll(string(p.Data), old, now))
	return p
}

func (b *storeBench) apply(o admin.StoreOptions, files ...admin.Piece) (admin.Written, error) {
	return b.Apply(b.t.Context(), files, o, "user test")
}

// must is an apply that works.
func (b *storeBench) must(files ...admin.Piece) admin.Written {
	b.t.Helper()
	w, err := b.apply(admin.StoreOptions{}, files...)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// writes are the events of whole writes, the others those of single objects.
func (b *storeBench) writes() (out []audit.Event) {
	for _, e := range b.events {
		if strings.HasPrefix(e.Target, "store") {
			out = append(out, e)
		}
	}
	return out
}

// last is the latest of writes, in one text.
func (b *storeBench) last() string {
	e := b.writes()[len(b.writes())-1]
	return fmt.Sprintf("%s %s %s %s: %s %v", e.Action, e.Actor, e.Target, e.Outcome, e.Reason, e.Details)
}

// has are the objects of the store.
func (b *storeBench) has() map[string]*config.Object {
	b.t.Helper()
	list, err := b.Store.Store.List(b.t.Context(), "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]*config.Object{}
	for _, o := range list {
		out[o.Key.String()] = o
	}
	return out
}

func actions(w admin.Written) string {
	var out []string
	for _, c := range w.Changes {
		out = append(out, c.Name+" "+c.Action)
	}
	return strings.Join(out, ", ")
}

// What is written is one revision and one event; what is there already is left alone and told.
func testStoreApply(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	w := b.must(serviceFile("web"), serviceFile("api"))
	if w.Revision != "1" || actions(w) != "api created, web created" {
		t.Errorf("got %+v", w)
	}
	w = b.must(with(serviceFile("web"), "10.0.0.1", "10.0.0.2"), serviceFile("api"), serviceFile("db"))
	if w.Revision != "2" || actions(w) != "api unchanged, db created, web changed" {
		t.Errorf("got %+v", w)
	}
	const want = "config.write user test store revision 2 : apply map[changed:1: ServiceEntry shop/web created:1: ServiceEntry shop/db revision:2 unchanged:1]"
	if b.last() != want {
		t.Errorf("recorded is\n%s\nwant\n%s", b.last(), want)
	}
	if w = b.must(serviceFile("api")); w.Revision != "2" || actions(w) != "api unchanged" {
		t.Errorf("got %+v, want no revision for nothing", w)
	}
	if n := len(b.writes()); n != 3 {
		t.Errorf("%d events, want one for each write", n)
	}
}

// Who did what to which object is in the audit log, with the hash before and after and what
// differs, and never with what is in it. Of many one digest tells of all.
func testStoreAudit(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	mine := with(serviceFile("web"), "10.0.0.1", "10.0.0.222")
	b.must(serviceFile("web"), serviceFile("api"))
	b.must(mine, serviceFile("api"))
	if _, err := b.Delete(t.Context(), []admin.Piece{serviceFile("web")}, admin.StoreOptions{},
		"user test"); err != nil {
		t.Fatal(err)
	}
	var got []string
	hashes := map[string]string{}
	for _, e := range b.events {
		if strings.Contains(fmt.Sprint(e), "10.0.0.222") {
			t.Errorf("what is in it is told: %v", e)
		}
		if strings.HasPrefix(e.Target, "store") {
			continue
		}
		if e.Details["before"] != hashes[e.Target] {
			t.Errorf("%s %s: before is %q, want %q", e.Target, e.Reason, e.Details["before"], hashes[e.Target])
		}
		hashes[e.Target] = e.Details["sha256"]
		got = append(got, fmt.Sprintf("%s %s %s %s %s at %s", e.Action, e.Actor, e.Target, e.Reason,
			e.Details["difference"], e.Details["revision"]))
	}
	want := []string{
		"config.write user test ServiceEntry shop/api created  at 1", "config.write user test ServiceEntry shop/web created  at 1",
		"config.write user test ServiceEntry shop/web changed spec.endpoints at 2", "config.write user test ServiceEntry shop/web deleted  at 3",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("recorded (-want +got):\n%s", d)
	}
	digests := map[string]bool{}
	for _, address := range []string{"10.0.0.1", "10.0.0.2"} {
		var many []admin.Piece
		for i := range maxWritten + 5 {
			many = append(many, serviceFile(fmt.Sprintf("many-%03d", i)))
		}
		many[maxWritten+4] = with(many[maxWritten+4], "10.0.0.1", address)
		if b = newStoreBench(t); b.must(many...).Revision != "1" {
			t.Fatal("not one revision")
		}
		last := b.events[len(b.events)-1]
		if len(b.events) != maxWritten+2 || last.Target != "store revision 1" ||
			last.Reason != "5 more objects were changed at once" {
			t.Errorf("%d events, the last %v", len(b.events), last)
		}
		digests[last.Details["sha256"]] = true
	}
	if len(digests) != 2 || digests[""] {
		t.Errorf("%v: want another digest where the last object is another", digests)
	}
}

// A preview shows the difference of each object, writes nothing, and needs no audit.
func testStorePreview(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	b.must(serviceFile("web"), serviceFile("api"))
	before := b.has()
	w, err := b.apply(admin.StoreOptions{Preview: true}, with(serviceFile("web"), "10.0.0.1", "10.0.0.2"),
		serviceFile("api"), serviceFile("db"))
	if err != nil || w.Revision != "1" || !w.Preview || actions(w) != "api unchanged, db created, web changed" {
		t.Fatalf("got %+v, %v", w, err)
	}
	const want = "--- ServiceEntry shop/web (store, revision 1)\n+++ ServiceEntry shop/web (web.yaml:1)\n"
	if d := w.Changes[2].Difference; !strings.HasPrefix(d, want) ||
		!strings.Contains(d, "\n-    - address: 10.0.0.1\n+    - address: 10.0.0.2\n") ||
		strings.Count(d, "\n-")+strings.Count(d, "\n+") != 3 {
		t.Errorf("the difference is\n%s", d)
	}
	if w.Changes[0].Difference != "" || !strings.HasPrefix(w.Changes[1].Difference,
		"--- /dev/null\n+++ ServiceEntry shop/db (db.yaml:1)\n") {
		t.Errorf("got %+v", w.Changes)
	}
	if d := cmp.Diff(before, b.has(), protocmp.Transform()); d != "" || len(b.writes()) != 1 {
		t.Errorf("it wrote, or recorded %v:\n%s", b.events, d)
	}
}

// One thing that is wrong keeps everything from being written, and is told with its place, as
// validation tells it.
func testStoreRefuses(t *testing.T, newStoreBench newBench) {
	for name, c := range map[string]struct {
		files []admin.Piece
		want  string // one problem
	}{
		"an empty file":         {[]admin.Piece{serviceFile("web"), {File: "e.yaml"}}, "e.yaml: the file is empty: it defines nothing and removes nothing"},
		"zeros":                 {[]admin.Piece{serviceFile("web"), {File: "e.yaml", Data: make([]byte, 100)}}, "e.yaml: the file is empty"},
		"an unknown kind":       {[]admin.Piece{serviceFile("web"), with(serviceFile("api"), "ServiceEntry", "ServiceEntri")}, `api.yaml:2: kind: unknown kind "ServiceEntri"`},
		"another file":          {[]admin.Piece{serviceFile("web"), {File: "x.yaml", Data: []byte("image: nginx\n")}}, "x.yaml:1"},
		"half a file":           {[]admin.Piece{serviceFile("web"), {File: "h.yaml", Data: fmt.Appendf(nil, entryFile, "api")[:120]}}, "h.yaml"},
		"binary":                {[]admin.Piece{serviceFile("web"), {File: "b.yaml", Data: []byte("\x7fELF\x02\xff")}}, "b.yaml:1: the text is not UTF-8"},
		"large":                 {[]admin.Piece{serviceFile("web"), {File: "l.yaml", Data: bytes.Repeat([]byte("a"), config.MaxFileSize+1)}}, "l.yaml"},
		"one key in two files":  {[]admin.Piece{serviceFile("web"), {File: "w.yaml", Data: serviceFile("web").Data}}, "w.yaml:1: ServiceEntry shop/web: web.yaml:1 defines it too and takes precedence"},
		"one key in one file":   {[]admin.Piece{{File: "w.yaml", Data: slices.Concat(serviceFile("web").Data, []byte("---\n"), serviceFile("web").Data)}}, "line 1 of the same file defines it too"},
		"a field that is wrong": {[]admin.Piece{serviceFile("web"), with(serviceFile("api"), "number: 80", "number: 80000")}, "spec.ports[0]"},
		"not supported yet":     {[]admin.Piece{serviceFile("web"), {File: "f.yaml", Data: []byte("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: a, namespace: shop}\nspec: {}\n")}}, "not supported yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newStoreBench(t)
			_, err := b.apply(admin.StoreOptions{}, c.files...)
			r, ok := errors.AsType[*admin.Refusal](err)
			if !ok || !errors.Is(err, admin.ErrInvalid) {
				t.Fatalf("got %v, want a refusal", err)
			}
			var texts []string
			for _, p := range r.Problems {
				texts = append(texts, p.String())
			}
			if !strings.Contains(strings.Join(texts, "\n"), c.want) {
				t.Errorf("got %q, want %q", texts, c.want)
			}
			if len(b.has()) > 0 {
				t.Errorf("the store has %v", b.has())
			}
			if !strings.Contains(b.last(), " refused: apply: ") || len(b.events) != 1 {
				t.Errorf("recorded is %v", b.events)
			}
		})
	}
	b := newStoreBench(t)
	for what, p := range map[string][]admin.Piece{
		"nothing at all": nil,
		"far too many":   make([]admin.Piece, maxPieces+1),
		"a name":         []admin.Piece{{Ref: &admin.Ref{Kind: "vs", Namespace: "a", Name: "b"}}},
	} {
		if _, err := b.Apply(t.Context(), p, admin.StoreOptions{}, "x"); !errors.Is(err, admin.ErrInvalid) ||
			len(b.has()) > 0 {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// A write at a revision is refused when one of its objects was changed since, by whom is told;
// others do not matter.
func testStoreAt(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	b.must(serviceFile("web"), serviceFile("api"), serviceFile("db"))
	mine := with(serviceFile("web"), "10.0.0.1", "10.0.0.2")
	b.must(with(serviceFile("api"), "10.0.0.1", "10.0.0.9"))
	if w, err := b.apply(admin.StoreOptions{At: "1"}, mine, serviceFile("db")); err != nil || w.Revision != "3" {
		t.Errorf("what others changed is not touched: got %+v, %v", w, err)
	}
	_, err := b.apply(admin.StoreOptions{At: "2"}, serviceFile("web"), serviceFile("db"), serviceFile("new"))
	r, ok := errors.AsType[*admin.Refusal](err)
	if !ok || !errors.Is(err, admin.ErrConflict) || len(r.Conflicts) != 1 || r.Conflicts[0].Name != "web" ||
		r.Conflicts[0].Revision != "3" || r.Conflicts[0].Who != "user test" || r.Conflicts[0].When.IsZero() {
		t.Fatalf("got %v %+v, want a conflict about web", err, r)
	}
	if _, found := b.has()["ServiceEntry shop/new"]; found {
		t.Error("half of it was written")
	}
	if !strings.Contains(b.last(), "refused") || !strings.Contains(b.last(), "changed at revision 3 by user test") {
		t.Errorf("recorded is %s", b.last())
	}
	for at, want := range map[string]error{"99": admin.ErrNotFound, "x": admin.ErrNotFound} {
		if _, err := b.apply(admin.StoreOptions{At: at}, serviceFile("web")); !errors.Is(err, want) {
			t.Errorf("at %s: got %v, want %v", at, err, want)
		}
	}
	if w, err := b.apply(admin.StoreOptions{Force: true}, serviceFile("web")); err != nil ||
		actions(w) != "web changed" || !strings.Contains(b.last(), "force:true") {
		t.Errorf("force: got %+v, %v", w, err)
	}
}

// faster is a store in which somebody else writes just before an Apply that changes something.
type faster struct {
	ObjectStore
	write func()
}

func (f *faster) Apply(ctx context.Context, changes []config.Change, who string) (string, error) {
	if len(changes) > 0 {
		f.write()
	}
	return f.ObjectStore.Apply(ctx, changes, who)
}

// Who was faster is named; with force it does not matter.
func testStoreRace(t *testing.T, newStoreBench newBench) {
	for name, c := range map[string]struct {
		other, mine admin.Piece
	}{
		"changed": {with(serviceFile("web"), "10.0.0.1", "10.0.0.3"), with(serviceFile("web"), "10.0.0.1", "10.0.0.2")},
		"created": {serviceFile("new"), with(serviceFile("new"), "10.0.0.1", "10.0.0.2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newStoreBench(t)
			b.must(serviceFile("web"))
			other := *b.Store
			b.Store.Store = &faster{b.Store.Store, func() {
				if _, err := other.Apply(t.Context(), []admin.Piece{c.other}, admin.StoreOptions{},
					"somebody else"); err != nil {
					t.Error(err)
				}
			}}
			_, err := b.apply(admin.StoreOptions{}, c.mine, serviceFile("db"))
			if r, ok := errors.AsType[*admin.Refusal](err); !ok || !errors.Is(err, admin.ErrConflict) ||
				len(r.Conflicts) != 1 || r.Conflicts[0].Who != "somebody else" {
				t.Errorf("got %v, want a conflict that names somebody else", err)
			}
			if _, found := b.has()["ServiceEntry shop/db"]; found {
				t.Error("half of it was written")
			}
			b.Store.Store.(*faster).write = func() {}
			if _, err := b.apply(admin.StoreOptions{Force: true}, c.mine); err != nil {
				t.Error(err)
			}
		})
	}
}

// While Consul cannot be asked nothing is said to hold in the store: a write is refused, also one
// that would change nothing by what was known last, and a preview says that it is of an old
// revision.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	b := onStore(func(t testing.TB) meshStore { return openConsul(t, agent) })(t)
	b.must(serviceFile("web"))
	b.must(with(serviceFile("web"), "10.0.0.1", "10.0.0.2"))
	now := with(serviceFile("web"), "10.0.0.1", "10.0.0.2")
	if w, err := b.apply(admin.StoreOptions{Preview: true}, now); err != nil || len(w.Warnings) != 0 {
		t.Errorf("a preview in touch: got %+v, %v", w, err)
	}
	agent.Kill()
	for what, write := range map[string]func(admin.StoreOptions) (admin.Written, error){
		"apply": func(o admin.StoreOptions) (admin.Written, error) { return b.apply(o, now) },
		"delete": func(o admin.StoreOptions) (admin.Written, error) {
			o.MissingOK = true
			ref := admin.Ref{Kind: "ServiceEntry", Namespace: "shop", Name: "gone"}
			return b.Delete(t.Context(), []admin.Piece{{Ref: &ref}}, o, "user test")
		},
		"rollback": func(o admin.StoreOptions) (admin.Written, error) {
			return b.Rollback(t.Context(), admin.RollbackRequest{Revision: "2"}, o, "user test")
		},
	} {
		for _, o := range []admin.StoreOptions{{}, {Force: true}, {At: "2"}} {
			if w, err := write(o); !errors.Is(err, consul.ErrAway) || !strings.Contains(err.Error(), "store.address") {
				t.Errorf("%s %+v: got %+v, %v; want that nothing was written, and why", what, o, w, err)
			}
			if !strings.Contains(b.last(), string(audit.Failed)) {
				t.Errorf("%s %+v: recorded is %s", what, o, b.last())
			}
		}
		w, err := write(admin.StoreOptions{Preview: true})
		if err != nil || len(w.Warnings) != 1 || w.Warnings[0].Severity != feed.Warning ||
			!strings.Contains(w.Warnings[0].Text, "revision 2") ||
			!strings.Contains(w.Warnings[0].Text, "store.address") {
			t.Errorf("a preview of %s: got %+v, %v; want a warning that it is of revision 2", what, w, err)
		}
	}
	if _, err := b.apply(admin.StoreOptions{}, with(now, "number: 80", "number: 80000")); !errors.Is(err,
		admin.ErrInvalid) {
		t.Errorf("a wrong file: got %v, want what is wrong with it", err)
	}
	agent.Start()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		w, err := b.apply(admin.StoreOptions{}, now)
		if err == nil {
			if w.Revision != "2" || actions(w) != "web unchanged" {
				t.Errorf("with Consul back: got %+v", w)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("with Consul back: got %v", err)
		}
	}
}

// All that is named is deleted, or nothing; of files only the names count.
func testStoreDelete(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	b.must(serviceFile("web"), serviceFile("api"), serviceFile("db"))
	remove := func(o admin.StoreOptions, p ...admin.Piece) (admin.Written, error) {
		return b.Delete(t.Context(), p, o, "user test")
	}
	named := func(kind, name string) admin.Piece {
		return admin.Piece{Ref: &admin.Ref{Kind: kind, Namespace: "shop", Name: name}}
	}
	for what, c := range map[string]struct {
		p    []admin.Piece
		want error
	}{
		"one is missing":  {[]admin.Piece{named("se", "web"), named("se", "none")}, admin.ErrNotFound},
		"unknown kind":    {[]admin.Piece{named("xx", "web")}, admin.ErrInvalid},
		"no name":         {[]admin.Piece{named("se", "")}, admin.ErrInvalid},
		"unreadable file": {[]admin.Piece{serviceFile("web"), {File: "x.yaml", Data: []byte("{")}}, admin.ErrInvalid},
	} {
		if _, err := remove(admin.StoreOptions{}, c.p...); !errors.Is(err, c.want) || len(b.has()) != 3 {
			t.Errorf("%s: got %v, want %v and all objects", what, err, c.want)
		}
	}
	w, err := remove(admin.StoreOptions{}, named("se", "web"), with(serviceFile("api"), "number: 80", "number: 80000"),
		serviceFile("api"))
	if err != nil || actions(w) != "api deleted, web deleted" || len(b.has()) != 1 {
		t.Errorf("got %+v, %v", w, err)
	}
	if w, err = remove(admin.StoreOptions{MissingOK: true}, named("se", "web"), serviceFile("db")); err != nil ||
		actions(w) != "db deleted, web not there" {
		t.Errorf("got %+v, %v", w, err)
	}
}

// Whatever was written, each revision that was can be brought back, the whole store or one object;
// that is a revision of its own, and shows in the history.
func testStoreRollback(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	random := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "b", "c", "d", "e"}
	states := []map[string]*config.Object{b.has()}
	for range 12 {
		var files []admin.Piece
		for _, i := range random.Perm(len(names))[:1+random.IntN(3)] {
			files = append(files, with(serviceFile(names[i]), "10.0.0.1", fmt.Sprintf("10.0.0.%d", len(states)+1)))
		}
		b.must(files...)
		states = append(states, b.has())
		w, err := b.Delete(t.Context(), []admin.Piece{serviceFile(names[random.IntN(len(names))])},
			admin.StoreOptions{MissingOK: true}, "x")
		if err != nil {
			t.Fatal(err)
		}
		if w.Changes[0].Action == admin.Deleted {
			states = append(states, b.has())
		}
	}
	for to := range states {
		w, err := b.Rollback(t.Context(), admin.RollbackRequest{Revision: fmt.Sprint(to)}, admin.StoreOptions{},
			"user test")
		if err != nil {
			t.Fatalf("to %d: %v", to, err)
		}
		same(t, fmt.Sprintf("to %d, at %s", to, w.Revision), states[to], b.has())
	}
	h, err := b.History(t.Context(), admin.HistoryRequest{Limit: 1, Differences: true})
	if err != nil || len(h.Revisions) != 1 || !strings.Contains(h.Revisions[0].Who, "user test, rollback to ") ||
		h.Revisions[0].Changes[0].Difference == "" {
		t.Errorf("got %+v, %v", h, err)
	}
	one := admin.RollbackRequest{Revision: "1", Ref: &admin.Ref{Kind: "se", Namespace: "shop"}}
	for _, one.Ref.Name = range names {
		key := "ServiceEntry shop/" + one.Ref.Name
		others := b.has()
		if _, err := b.Rollback(t.Context(), one, admin.StoreOptions{}, "x"); err != nil {
			t.Fatal(err)
		}
		delete(others, key)
		if o, was := states[1][key]; was {
			others[key] = o
		}
		same(t, "one object", others, b.has())
	}
	for revision, want := range map[string]error{"9999": admin.ErrNotFound, "": admin.ErrInvalid,
		"-1": admin.ErrInvalid} {
		if _, err := b.Rollback(t.Context(), admin.RollbackRequest{Revision: revision}, admin.StoreOptions{},
			"x"); !errors.Is(err, want) {
			t.Errorf("to %q: got %v, want %v", revision, err, want)
		}
	}
}

// same compares what stores hold; revisions and times of creation do not come back.
func same(t *testing.T, what string, want, got map[string]*config.Object) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: %d objects, want %d", what, len(got), len(want))
	}
	for key, o := range want {
		if !config.SameContent(o, got[key]) {
			t.Errorf("%s: %s is %v, want %v", what, key, got[key], o)
		}
	}
}

// Which of two definitions is in use is told.
func testStoreNotes(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	var objects push.Objects
	file := config.Parse("web.yaml", serviceFile("web").Data).Objects[0]
	file.Origin.Source = "file:/config"
	objects = objects.With(file.Key, file)
	c := push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"},
		Objects: objects})
	b.Published.Publish(c)
	order := []string{"file:/config", b.Store.Store.Name()}
	b.Sources = func() (out []feed.SourceStatus) {
		for _, name := range order {
			out = append(out, feed.SourceStatus{Name: name})
		}
		return out
	}
	note := func(w admin.Written, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w.Changes[0].Note
	}
	for _, s := range []struct {
		order []string
		want  string
	}{
		{order, "web.yaml:1 defines it too, and that one stays in use"},
		{[]string{order[1], order[0]}, "the one of the store comes into use"},
		{[]string{order[0]}, "nothing of the store is in use"},
	} {
		order = s.order
		if got := note(b.apply(admin.StoreOptions{}, serviceFile("web"))); !strings.Contains(got, s.want) {
			t.Errorf("%v: got %q, want %q", s.order, got, s.want)
		}
	}
	order = []string{"file:/config", b.Store.Store.Name()}
	if got := note(b.apply(admin.StoreOptions{}, serviceFile("api"))); got != "" {
		t.Errorf("got %q for what nobody else defines", got)
	}
	if got := note(b.Delete(t.Context(), []admin.Piece{serviceFile("web")}, admin.StoreOptions{},
		"x")); !strings.Contains(got, "that one is in use") {
		t.Errorf("delete: got %q", got)
	}
	b.must(serviceFile("db"))
	stored := config.Parse("", serviceFile("db").Data).Objects[0]
	stored.Origin = config.Origin{Source: b.Store.Store.Name()}
	c = push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"},
		Objects: objects.With(stored.Key, stored)})
	b.Published.Publish(c)
	b.Problems = func() []feed.Problem {
		return []feed.Problem{
			{Severity: feed.Error, Source: "file:/config", File: "api.yaml", Line: 3, Object: "ServiceEntry shop/api"},
			{Severity: feed.Warning, Source: "file:/config", File: "w.yaml", Line: 1, Object: stored.Key.String()},
			{Severity: feed.Error, Source: b.Store.Store.Name(), Object: stored.Key.String()},
			{Severity: feed.Error, Source: "file:/config", File: "db.yaml", Line: 7, Object: stored.Key.String()},
		}
	}
	if got := note(b.apply(admin.StoreOptions{Preview: true}, serviceFile("db"))); got != "" {
		t.Errorf("apply of what a file has with an error: got %q", got)
	}
	if got := note(b.Delete(t.Context(), []admin.Piece{serviceFile("db")}, admin.StoreOptions{Preview: true},
		"x")); got != "db.yaml:7 has it too, with an error: it takes effect when that is fixed" {
		t.Errorf("delete of what a file has with an error: got %q", got)
	}
	_, err := b.Delete(t.Context(), []admin.Piece{serviceFile("web")}, admin.StoreOptions{}, "x")
	if err == nil || !strings.Contains(err.Error(), "web.yaml:1 defines the one that is in use") {
		t.Errorf("delete of what a file defines: got %v", err)
	}
}

// What the store has is listed as operators write it.
func testStored(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	b.must(serviceFile("web"), serviceFile("api"))
	for _, c := range []struct {
		kind, namespace, name string
		want                  int
		err                   error
	}{{"", "", "", 2, nil}, {"se", "shop", "web", 1, nil}, {"se", "other", "", 0, nil}, {"vs", "", "", 0, nil}, {"se",
		"shop", "none", 0, admin.ErrNotFound}, {"xx", "", "", 0, admin.ErrInvalid}} {
		got, err := b.Stored(t.Context(), admin.ObjectQuery{Kind: c.kind, Namespace: c.namespace, Name: c.name})
		if len(got) != c.want || !errors.Is(err, c.err) || c.want > 0 &&
			(got[0].Origin.Revision != "1" || got[0].Kind != "ServiceEntry") {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
}

// lately is a store in which somebody else writes just before a List.
type lately struct {
	ObjectStore
	write func()
}

func (l *lately) List(ctx context.Context, kind config.Kind, namespace string) ([]*config.Object, error) {
	l.write()
	return l.ObjectStore.List(ctx, kind, namespace)
}

// What is written after a rollback has looked at the past is not undone with it.
func testStoreRollbackRace(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	b.must(serviceFile("web"))
	b.must(with(serviceFile("web"), "10.0.0.1", "10.0.0.2"))
	other := *b.Store
	b.Store.Store = &lately{b.Store.Store, func() {
		if _, err := other.Apply(t.Context(), []admin.Piece{with(serviceFile("web"), "10.0.0.1", "10.0.0.3")},
			admin.StoreOptions{}, "somebody else"); err != nil {
			t.Error(err)
		}
	}}
	_, err := b.Rollback(t.Context(), admin.RollbackRequest{Revision: "1"}, admin.StoreOptions{}, "x")
	if r, ok := errors.AsType[*admin.Refusal](err); !ok || !errors.Is(err, admin.ErrConflict) ||
		len(r.Conflicts) != 1 || r.Conflicts[0].Who != "somebody else" {
		t.Errorf("got %v, want a conflict that names somebody else", err)
	}
}

// endless is a store with a long past.
type endless struct{ ObjectStore }

func (e endless) History(_ context.Context, q config.Query) (config.Past, error) {
	if !q.Bare {
		panic("all of it was read")
	}
	return config.Past{Latest: "1", Since: "0", Revisions: []config.Revision{{Number: "1",
		Writes: make([]config.Write, maxDifferences+1)}}}, nil
}

// More differences than fit into an answer are refused before they are read, with what to ask
// instead.
func TestStoreHistoryEndless(t *testing.T) {
	t.Parallel()
	b := onStore(openBolt)(t)
	b.Store.Store = endless{b.Store.Store}
	_, err := b.History(t.Context(), admin.HistoryRequest{Differences: true})
	if !errors.Is(err, admin.ErrInvalid) || !strings.Contains(err.Error(), "--limit") {
		t.Errorf("got %v, want ErrInvalid and what to do", err)
	}
	if _, err := b.History(t.Context(), admin.HistoryRequest{Limit: -1}); !errors.Is(err, admin.ErrInvalid) {
		t.Errorf("a negative limit: got %v", err)
	}
}

// deserted is a store whose caller goes away while it lists its objects.
type deserted struct {
	ObjectStore
	leave func()
}

func (d deserted) List(ctx context.Context, kind config.Kind, namespace string) ([]*config.Object, error) {
	defer d.leave()
	return d.ObjectStore.List(ctx, kind, namespace)
}

// Differences that nobody waits for any more are not made.
func TestStoreDifferencesEnd(t *testing.T) {
	t.Parallel()
	b := onStore(openBolt)(t)
	b.must(serviceFile("web"))
	ctx, cancel := context.WithCancel(t.Context())
	b.Store.Store = deserted{b.Store.Store, cancel}
	files := []admin.Piece{with(serviceFile("web"), "10.0.0.1", "10.0.0.2")}
	if _, err := b.Apply(ctx, files, admin.StoreOptions{Preview: true}, "user test"); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v, want the end of who asked", err)
	}
}

// However much is wrong, every file counts: none is left out because others have warnings, or
// errors.
func testStoreMany(t *testing.T, newStoreBench newBench) {
	const n = maxStoreProblems + 500
	gateways := func(port string) []admin.Piece {
		var out []admin.Piece
		for i := range n {
			out = append(out, admin.Piece{File: fmt.Sprintf("g%04d.yaml", i),
				Data: fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: Gateway\n"+
					"metadata: {name: g%04d, namespace: shop}\nspec: {servers: [{port: {number: %s, name: http, protocol: HTTP}, hosts: [a.example]}]}\n", i, port)})
		}
		return out
	}
	b := newStoreBench(t)
	_, err := b.apply(admin.StoreOptions{}, append(gateways("80"),
		with(serviceFile("web"), "number: 80", "number: 80000"))...)
	r, ok := errors.AsType[*admin.Refusal](err)
	if !ok || err.Error() != "1 error: nothing was written" || len(b.has()) > 0 {
		t.Fatalf("an error behind %d warnings: got %v and %d objects", n, err, len(b.has()))
	}
	if got := len(r.Problems); got != maxStoreProblems+1 || r.Problems[0].File != "web.yaml" ||
		!strings.Contains(r.Problems[got-1].Text, "501 more are not listed") {
		t.Errorf("%d problems are listed, the first is %v, the last %v", got, r.Problems[0], r.Problems[got-1])
	}
	w := b.must(gateways("80")...)
	if len(w.Changes) != n || len(b.has()) != n || len(w.Warnings) != maxStoreProblems+1 {
		t.Errorf("%d changes, %d objects, %d warnings; want %d of the first two", len(w.Changes), len(b.has()),
			len(w.Warnings), n)
	}
	if _, err := b.apply(admin.StoreOptions{}, gateways("80000")...); err == nil ||
		err.Error() != "1500 errors: nothing was written" {
		t.Errorf("got %v, want every error counted", err)
	}
	if w, err = b.Delete(t.Context(), gateways("80000"), admin.StoreOptions{}, "x"); err != nil ||
		len(w.Changes) != n || len(b.has()) > 0 {
		t.Errorf("deleted are %d, and %d are left, %v", len(w.Changes), len(b.has()), err)
	}
}
