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
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/push"
)

// storeBench is a storekeeper and what it records.
type storeBench struct {
	*API
	t      *testing.T
	events []audit.Event
}

// newBench makes one on a new, empty store.
type newBench func(t *testing.T) *storeBench

// onStore makes benches on stores that open opens.
func onStore(open func(testing.TB) meshStore) newBench {
	return func(t *testing.T) *storeBench {
		b := &storeBench{t: t}
		b.API = newStorekeeper(open(t), func(e audit.Event) { b.events = append(b.events, e) })
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
			"StoreApply":    testStoreApply,
			"StorePreview":  testStorePreview,
			"StoreRefuses":  testStoreRefuses,
			"StoreRoles":    testStoreRoles,
			"StoreMany":     testStoreMany,
			"StoreAt":       testStoreAt,
			"StoreRace":     testStoreRace,
			"StoreDelete":   testStoreDelete,
			"StoreRollback": testStoreRollback,
			"StoreNotes":    testStoreNotes,
			"Stored":        testStored,
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

// write writes as "user test".
func (b *storeBench) write(w admin.StoreWrite) (admin.Written, error) {
	return b.Write(admin.WithCaller(b.t.Context(), "user test", admin.Operator), w)
}

// applyOf is an apply of files.
func applyOf(files ...admin.Piece) admin.StoreWrite {
	return admin.StoreWrite{Action: admin.Apply, Pieces: files}
}

// deleteOf is a delete of pieces.
func deleteOf(pieces ...admin.Piece) admin.StoreWrite {
	return admin.StoreWrite{Action: admin.Delete, Pieces: pieces}
}

// must is an apply that works.
func (b *storeBench) must(files ...admin.Piece) admin.Written {
	b.t.Helper()
	w, err := b.write(applyOf(files...))
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
	list, err := b.API.Store.List(b.t.Context(), "", "")
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
	const want = "config.write user test store revision 2 : apply map[changed:ServiceEntry shop/web changes:2 created:ServiceEntry shop/db]"
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

// Only admins write EnvoyFilters.
func testStoreRoles(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	w := applyOf(serviceFile("web"), admin.Piece{File: "f.yaml", Data: []byte("apiVersion: networking.istio.io/v1alpha3\n" +
		"kind: EnvoyFilter\nmetadata: {name: limits, namespace: shop}\nspec: {}\n")})
	for _, role := range []admin.Role{admin.Nobody, admin.Operator, admin.Admin} {
		_, err := b.Write(admin.WithCaller(t.Context(), "ann", role), w)
		if errors.Is(err, admin.ErrForbidden) != (role != admin.Admin) {
			t.Errorf("%s: %v", role, err)
		}
	}
	if _, err := b.Write(admin.WithCaller(t.Context(), "ann", admin.Operator), w); err != nil {
		t.Errorf("what changes nothing is refused: %v", err)
	}
}

// A preview shows the difference of each object, writes nothing, and needs no audit.
func testStorePreview(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	b.must(serviceFile("web"), serviceFile("api"))
	before := b.has()
	w, err := b.Preview(t.Context(), applyOf(with(serviceFile("web"), "10.0.0.1", "10.0.0.2"), serviceFile("api"),
		serviceFile("db")))
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
		"not supported yet":     {[]admin.Piece{serviceFile("web"), {File: "f.yaml", Data: []byte("apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: a, namespace: shop}\nspec: {}\n")}}, "not supported yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newStoreBench(t)
			_, err := b.write(applyOf(c.files...))
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
			if !strings.Contains(b.last(), " failed: apply: ") || len(b.events) != 1 {
				t.Errorf("recorded is %v", b.events)
			}
		})
	}
}

// A write at a revision is refused when one of its objects was changed since; others do not matter.
func testStoreAt(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	at := func(revision string, files ...admin.Piece) (admin.Written, error) {
		w := applyOf(files...)
		w.At = revision
		return b.write(w)
	}
	b.must(serviceFile("web"), serviceFile("api"), serviceFile("db"))
	mine := with(serviceFile("web"), "10.0.0.1", "10.0.0.2")
	b.must(with(serviceFile("api"), "10.0.0.1", "10.0.0.9"))
	if w, err := at("1", mine, serviceFile("db")); err != nil || w.Revision != "3" {
		t.Errorf("what others changed is not touched: got %+v, %v", w, err)
	}
	_, err := at("2", serviceFile("web"), serviceFile("db"), serviceFile("new"))
	if !errors.Is(err, admin.ErrConflict) ||
		!strings.Contains(err.Error(), "ServiceEntry shop/web was changed at revision 3 by user test") {
		t.Fatalf("got %v, want a conflict about web", err)
	}
	if _, found := b.has()["ServiceEntry shop/new"]; found {
		t.Error("half of it was written")
	}
	if !strings.Contains(b.last(), "failed") || !strings.Contains(b.last(), "changed at revision 3 by user test") {
		t.Errorf("recorded is %s", b.last())
	}
	for revision, want := range map[string]error{"99": admin.ErrNotFound, "x": admin.ErrNotFound} {
		if _, err := at(revision, serviceFile("web")); !errors.Is(err, want) {
			t.Errorf("at %s: got %v, want %v", revision, err, want)
		}
	}
}

// faster is a store in which somebody else writes just before an Apply that changes something.
type faster struct {
	config.Store
	write func()
}

func (f *faster) Apply(ctx context.Context, changes []config.Change, who string) (string, error) {
	if len(changes) > 0 {
		f.write()
	}
	return f.Store.Apply(ctx, changes, who)
}

// A write that somebody else was faster than is refused.
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
			other := *b.API
			b.API.Store = &faster{b.API.Store, func() {
				if _, err := other.apply(t.Context(), "somebody else", c.other); err != nil {
					t.Error(err)
				}
			}}
			if _, err := b.write(applyOf(c.mine, serviceFile("db"))); !errors.Is(err, admin.ErrConflict) {
				t.Errorf("got %v, want a conflict", err)
			}
			if _, found := b.has()["ServiceEntry shop/db"]; found {
				t.Error("half of it was written")
			}
			b.API.Store.(*faster).write = func() {}
			if _, err := b.write(applyOf(c.mine)); err != nil {
				t.Error(err)
			}
		})
	}
}

// While Consul cannot be asked a write is refused, also one that would change nothing by what was
// known last. A preview names the revision that it knows.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	b := onStore(func(t testing.TB) meshStore { return openConsul(t, agent) })(t)
	b.must(serviceFile("web"))
	now := with(serviceFile("web"), "10.0.0.1", "10.0.0.2")
	b.must(now)
	agent.Kill()
	missing := deleteOf(admin.Piece{Ref: &admin.Ref{Kind: "ServiceEntry", Namespace: "shop", Name: "gone"}})
	missing.MissingOK = true
	for _, write := range []admin.StoreWrite{applyOf(now), missing, {Action: admin.Rollback, Revision: "2"}} {
		if w, err := b.write(write); !errors.Is(err, consul.ErrAway) || !strings.Contains(err.Error(), "store.address") {
			t.Errorf("%s: got %+v, %v; want that nothing was written, and why", write.Action, w, err)
		}
		if !strings.Contains(b.last(), string(audit.Failed)) {
			t.Errorf("%s: recorded is %s", write.Action, b.last())
		}
		if w, err := b.Preview(t.Context(), write); err != nil || w.Revision != "2" {
			t.Errorf("a preview of %s: got %+v, %v; want revision 2", write.Action, w, err)
		}
	}
	agent.Start()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		w, err := b.write(applyOf(now))
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
		if _, err := b.write(deleteOf(c.p...)); !errors.Is(err, c.want) || len(b.has()) != 3 {
			t.Errorf("%s: got %v, want %v and all objects", what, err, c.want)
		}
	}
	w, err := b.write(deleteOf(named("se", "web"), with(serviceFile("api"), "number: 80", "number: 80000"),
		serviceFile("api")))
	if err != nil || actions(w) != "api deleted, web deleted" || len(b.has()) != 1 {
		t.Errorf("got %+v, %v", w, err)
	}
	some := deleteOf(named("se", "web"), serviceFile("db"))
	some.MissingOK = true
	if w, err = b.write(some); err != nil ||
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
		one := deleteOf(serviceFile(names[random.IntN(len(names))]))
		one.MissingOK = true
		w, err := b.write(one)
		if err != nil {
			t.Fatal(err)
		}
		if w.Changes[0].Action == admin.Deleted {
			states = append(states, b.has())
		}
	}
	for to := range states {
		w, err := b.write(admin.StoreWrite{Action: admin.Rollback, Revision: fmt.Sprint(to)})
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
	one := admin.StoreWrite{Action: admin.Rollback, Revision: "1", Ref: &admin.Ref{Kind: "se", Namespace: "shop"}}
	for _, one.Ref.Name = range names {
		key := "ServiceEntry shop/" + one.Ref.Name
		others := b.has()
		if _, err := b.write(one); err != nil {
			t.Fatal(err)
		}
		delete(others, key)
		if o, was := states[1][key]; was {
			others[key] = o
		}
		same(t, "one object", others, b.has())
	}
	for _, revision := range []string{"9999", "", "-1"} {
		if _, err := b.write(admin.StoreWrite{Action: admin.Rollback, Revision: revision}); !errors.Is(err,
			admin.ErrNotFound) {
			t.Errorf("to %q: got %v, want ErrNotFound", revision, err)
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

// A write names the file that defines an object too, and is active.
func testStoreNotes(t *testing.T, newStoreBench newBench) {
	b := newStoreBench(t)
	file := config.Parse("web.yaml", serviceFile("web").Data).Objects[0]
	file.Origin.Source = "file:/config"
	stored := config.Parse("", serviceFile("db").Data).Objects[0]
	stored.Origin = config.Origin{Source: b.API.Store.Name()}
	b.Published = publish(push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"},
		Objects: push.Objects{}.With(file.Key, file).With(stored.Key, stored)}))
	const note = "web.yaml:1 defines it too: the first of the two in the setting sources is active"
	for _, write := range []admin.StoreWrite{applyOf(serviceFile("web"), serviceFile("db"), serviceFile("new")),
		deleteOf(serviceFile("web"), serviceFile("db"))} {
		w, err := b.write(write)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range w.Changes {
			if want := map[string]string{"web": note}[c.Name]; c.Note != want {
				t.Errorf("%s %s: got the note %q, want %q", write.Action, c.Name, c.Note, want)
			}
		}
	}
	const there = "ServiceEntry shop/web is not in the store. web.yaml:1 defines it: delete it there"
	if _, err := b.write(deleteOf(serviceFile("web"))); err == nil || !strings.Contains(err.Error(), there) {
		t.Errorf("delete of what a file defines: got %v", err)
	}
	_, err := b.API.Objects(t.Context(), admin.ObjectQuery{Store: true, Kind: "se", Namespace: "shop", Name: "web"})
	if err == nil || err.Error() != "ServiceEntry shop/web is not in the store. web.yaml:1 defines it: change it there" {
		t.Errorf("reading from the store what a file defines: got %v", err)
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
	}{{"se", "", "", 2, nil}, {"se", "shop", "web", 1, nil}, {"se", "other", "", 0, nil}, {"vs", "", "", 0, nil}, {"se",
		"shop", "none", 0, admin.ErrNotFound}, {"xx", "", "", 0, admin.ErrInvalid}} {
		got, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: c.kind, Namespace: c.namespace, Name: c.name, Store: true})
		if len(got) != c.want || !errors.Is(err, c.err) || c.want > 0 &&
			(got[0].Origin.Revision != "1" || got[0].Kind != "ServiceEntry") {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
}

// limited is a store that records the limit of a query.
type limited struct {
	config.Store
	limit *int
}

func (l limited) History(_ context.Context, q config.Query) (config.Past, error) {
	*l.limit = q.Limit
	return config.Past{Latest: "1", Since: "0"}, nil
}

// With differences, which are in memory, an answer has a limited number of revisions.
func TestStoreHistoryLimit(t *testing.T) {
	t.Parallel()
	b := onStore(openBolt)(t)
	limit := -1
	b.API.Store = limited{b.API.Store, &limit}
	for _, c := range []struct {
		request admin.HistoryRequest
		want    int
	}{
		{admin.HistoryRequest{Differences: true}, maxDifferences},
		{admin.HistoryRequest{Differences: true, Limit: 1000}, maxDifferences},
		{admin.HistoryRequest{Differences: true, Limit: 3}, 3},
		{admin.HistoryRequest{Limit: 1000}, 1000},
	} {
		if _, err := b.History(t.Context(), c.request); err != nil || limit != c.want {
			t.Errorf("%+v: the limit is %d, %v; want %d", c.request, limit, err, c.want)
		}
	}
}

// deserted is a store whose caller goes away while it lists its objects.
type deserted struct {
	config.Store
	leave func()
}

func (d deserted) List(ctx context.Context, kind config.Kind, namespace string) ([]*config.Object, error) {
	defer d.leave()
	return d.Store.List(ctx, kind, namespace)
}

// Differences that nobody waits for any more are not made.
func TestStoreDifferencesEnd(t *testing.T) {
	t.Parallel()
	b := onStore(openBolt)(t)
	b.must(serviceFile("web"))
	ctx, cancel := context.WithCancel(t.Context())
	b.API.Store = deserted{b.API.Store, cancel}
	if _, err := b.Preview(ctx, applyOf(with(serviceFile("web"), "10.0.0.1", "10.0.0.2"))); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v, want the end of who asked", err)
	}
}

// However much is wrong, every file counts: none is left out because others have warnings, or
// errors.
func testStoreMany(t *testing.T, newStoreBench newBench) {
	const n = 1500
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
	_, err := b.write(applyOf(append(gateways("80"), with(serviceFile("web"), "number: 80", "number: 80000"))...))
	if err == nil || err.Error() != "1 error: nothing was written" || len(b.has()) > 0 {
		t.Fatalf("an error behind %d warnings: got %v and %d objects", n, err, len(b.has()))
	}
	w := b.must(gateways("80")...)
	if len(w.Changes) != n || len(b.has()) != n || len(w.Warnings) != n {
		t.Errorf("%d changes, %d objects, %d warnings; want %d", len(w.Changes), len(b.has()), len(w.Warnings), n)
	}
	if _, err := b.write(applyOf(gateways("80000")...)); err == nil || err.Error() != "1500 errors: nothing was written" {
		t.Errorf("got %v, want every error counted", err)
	}
	if w, err = b.write(deleteOf(gateways("80000")...)); err != nil || len(w.Changes) != n || len(b.has()) > 0 {
		t.Errorf("deleted are %d, and %d are left, %v", len(w.Changes), len(b.has()), err)
	}
}
