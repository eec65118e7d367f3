package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// The store of fake: an apply is answered by the name of the first file, the rest always the same.

func (*fake) stored(q admin.ObjectQuery) ([]admin.Object, error) {
	if q.Name == "none" {
		return nil, admin.NewError(admin.ErrNotFound, `the store has no VirtualService "none"`)
	}
	return []admin.Object{{APIVersion: "networking.istio.io/v1", Kind: "VirtualService",
		Metadata: admin.Metadata{Name: "web", Namespace: "shop"},
		Spec:     json.RawMessage(`{"hosts":["web"]}`), Origin: admin.Origin{Source: "store:/x", Revision: "7"}}}, nil
}

func (f *fake) Preview(ctx context.Context, w admin.StoreWrite) (admin.Written, error) {
	out, err := f.Write(ctx, w)
	out.Preview = true
	if w.Action == admin.Apply && out.Changes[0].Action != admin.Unchanged {
		out.Changes[0].Difference = "--- a\n+++ b\n"
	}
	return out, err
}

func (f *fake) Write(ctx context.Context, w admin.StoreWrite) (admin.Written, error) {
	switch w.Action {
	case admin.Apply:
		return f.apply(ctx, w.Pieces)
	case admin.Delete:
		return f.remove(w.Pieces)
	}
	ref := admin.Ref{Kind: "all", Namespace: "to", Name: w.Revision}
	if w.Ref != nil {
		ref = *w.Ref
	}
	return admin.Written{Revision: "43", Changes: []admin.ObjectChange{{Ref: ref, Action: admin.Created}}}, nil
}

func (*fake) apply(ctx context.Context, p []admin.Piece) (admin.Written, error) {
	var files []string
	for _, piece := range p {
		files = append(files, filepath.Base(piece.File))
	}
	se := admin.Ref{Kind: "ServiceEntry", Namespace: "shop", Name: "web"}
	w := admin.Written{Revision: "41",
		Changes: []admin.ObjectChange{{Ref: se, Action: admin.Changed, Note: "a.yaml:1 defines it too"}}}
	if strings.Contains(string(p[0].Data), "refuse:") {
		files[0] = "bad.yaml"
	}
	switch files[0] {
	case "bad.yaml":
		return w, &admin.Refusal{Text: "1 error: nothing was written", Is: admin.ErrInvalid,
			Problems: []feed.Problem{{Severity: feed.Error, File: "bad.yaml", Line: 3, Object: "ServiceEntry shop/web",
				Field: "spec.hosts", Text: "is missing"}}}
	case "conflict.yaml":
		return w, admin.NewError(admin.ErrConflict, "nothing was written: %s was changed at revision 40", se)
	case "slow.yaml":
		<-ctx.Done()
		return w, ctx.Err()
	case "same.yaml":
		w.Changes[0] = admin.ObjectChange{Ref: se, Action: admin.Unchanged}
	}
	w.Warnings = append(w.Warnings, feed.Problem{Severity: feed.Warning, File: strings.Join(files, "+"), Text: "files"})
	return w, nil
}

func (*fake) remove(p []admin.Piece) (admin.Written, error) {
	w := admin.Written{Revision: "42"}
	for _, piece := range p {
		if piece.Ref == nil {
			piece.Ref = &admin.Ref{Kind: "file", Namespace: "of", Name: filepath.Base(piece.File)}
		}
		w.Changes = append(w.Changes, admin.ObjectChange{Ref: *piece.Ref, Action: admin.Deleted})
	}
	return w, nil
}

func (*fake) History(_ context.Context, r admin.HistoryRequest) (admin.StoreHistory, error) {
	h := admin.StoreHistory{Latest: "42", Since: "0", Revisions: []admin.StoreRevision{}}
	if r.Limit == 1 {
		return h, nil
	}
	ref := admin.Ref{Kind: "Gateway", Namespace: "shop", Name: "g"}
	if r.Ref != nil {
		ref = *r.Ref
	}
	when := time.Now().Add(-3 * time.Hour)
	one := admin.ObjectChange{Ref: ref, Action: admin.Changed}
	if r.Differences {
		one.Difference = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"
	}
	h.Revisions = []admin.StoreRevision{{Revision: "42", Who: "user ann\x1b[31m", When: when,
		Changes: []admin.ObjectChange{one}},
		{Revision: "41", When: when, Changes: []admin.ObjectChange{one, one, one, one}}}
	return h, nil
}

// storeFolder is a folder of files, one of them in a folder below.
func storeFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "bad.yaml", "conflict.yaml", "slow.yaml", "same.yaml", "all/b.yaml",
		"all/sub/c.yaml", "none/readme.txt"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte("x: y\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("gone.yaml", filepath.Join(dir, "all", "link.yaml")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestStoreCommands(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	dir := storeFolder(t)
	if err := os.Remove(filepath.Join(dir, "all", "link.yaml")); err != nil {
		t.Fatal(err)
	}
	warning := func(files string) string { return "WARNING " + files + "\n  files\n\n" }
	for _, tc := range []struct {
		args string
		code int
		out  string // all of it; standard error where there is no other
	}{
		{"apply -f DIR/a.yaml", 0, warning("a.yaml") + "ServiceEntry shop/web changed\n  note: a.yaml:1 defines it too\nrevision 41: 1 changed\n"},
		{"apply -f DIR/same.yaml", 0, warning("same.yaml") + "ServiceEntry shop/web unchanged\nnothing to change at revision 41\n"},
		{"apply -f DIR/a.yaml --dry-run", 0, warning("a.yaml") + "--- a\n+++ b\n  note: a.yaml:1 defines it too\nnothing was written (--dry-run); compared with revision 41: 1 changed. Use --at 41 to write this\n"},
		{"apply -f DIR/all", 0, warning("b.yaml+c.yaml") + "ServiceEntry shop/web changed\n  note: a.yaml:1 defines it too\nrevision 41: 1 changed\n"},
		{"apply -f DIR/bad.yaml", 1, "ERROR bad.yaml:3\n  ServiceEntry shop/web  spec.hosts\n  is missing\n\n1 error, 0 warnings\n"},
		{"apply -f DIR/conflict.yaml", 1, "ashorectl: nothing was written: ServiceEntry shop/web was changed at revision 40\n"},
		{"apply", 2, "ashorectl: no file: name at least one file or folder with -f\nSee \"ashorectl apply --help\".\n"},
		{"apply -f DIR/none", 2, "ashorectl: no file .yaml, .yml or .json in DIR/none\nSee \"ashorectl apply --help\".\n"},
		{"apply a.yaml", 2, "ashorectl: unknown command \"a.yaml\" for \"ashorectl apply\": want ashorectl apply -f FILE|FOLDER|- [flags]\nSee \"ashorectl apply --help\".\n"},
		{"delete vs shop/web", 0, "vs shop/web deleted\nrevision 42: 1 deleted\n"},
		{"delete vs web -n shop", 0, "vs shop/web deleted\nrevision 42: 1 deleted\n"},
		{"delete -f DIR/a.yaml", 0, "file of/a.yaml deleted\nrevision 42: 1 deleted\n"},
		{"delete vs shop/web -n other", 2, "ashorectl: namespace \"shop\" in the name, and \"other\" in -n: want one namespace\nSee \"ashorectl delete --help\".\n"},
		{"delete vs web", 2, "ashorectl: the namespace of \"web\" is missing: want NAMESPACE/web, or -n NAMESPACE\nSee \"ashorectl delete --help\".\n"},
		{"delete vs", 2, "ashorectl: the name is missing: name the vs, such as shop/web\nSee \"ashorectl delete --help\".\n"},
		{"delete", 2, "ashorectl: want either an object, KIND NAME, or files with -f\nSee \"ashorectl delete --help\".\n"},
		{"delete vs shop/web -f DIR/a.yaml", 2, "ashorectl: want either an object, KIND NAME, or files with -f\nSee \"ashorectl delete --help\".\n"},
		{"rollback 12", 0, "all to/12 created\nrevision 43: 1 created\n"},
		{"rollback vs shop/web 12 --dry-run", 0, "vs shop/web created\nnothing was written (--dry-run); compared with revision 43: 1 created. Use --at 43 to write this\n"},
		{"rollback vs web", 2, "ashorectl: the revision is missing: want ashorectl rollback [KIND NAME] REVISION [flags]\nSee \"ashorectl rollback --help\".\n"},
		{"history --limit 1", 0, "none; the store is at revision 42\n"},
		{"history vs", 2, "ashorectl: the name is missing: name the vs, such as shop/web\nSee \"ashorectl history --help\".\n"},
		{"get vs --store", 0, "NAMESPACE  NAME  READ FROM\nshop       web   store:/x revision 7\n"},
		{"get vs none --store", 1, "ashorectl: the store has no VirtualService \"none\"\n"},
		{"get vs -o name", 0, "virtualservice shop/web\n"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(strings.ReplaceAll(tc.args, "DIR", dir))
			code, out, errOut := result(t, append([]string{"--socket", socket}, args...)...)
			if out == "" {
				out = errOut
			}
			if d := cmp.Diff(strings.ReplaceAll(tc.out, "DIR", dir), out); d != "" || code != tc.code {
				t.Errorf("exit code %d, want %d (-want +got):\n%s%s", code, tc.code, d, errOut)
			}
		})
	}
}

// The formats of a history.
func TestHistory(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	_, out, _ := result(t, "--socket", socket, "history")
	for _, want := range []string{"REVISION  WHEN", "3h   user ann?[31m  changed Gateway shop/g\n",
		"3h   -              4 changed: Gateway shop/g, Gateway shop/g, Gateway shop/g, …\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%swant %q", out, want)
		}
	}
	_, out, _ = result(t, "--socket", socket, "history", "vs", "shop/web", "--diff")
	if !strings.Contains(out, "revision 42, ") || !strings.Contains(out,
		", by user ann?[31m: 1 changed\n--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n\nrevision 41") {
		t.Errorf("the differences are\n%s", out)
	}
	_, out, _ = result(t, "--socket", socket, "history", "-o", "json")
	var h admin.StoreHistory
	if err := json.Unmarshal([]byte(out), &h); err != nil || len(h.Revisions) != 2 {
		t.Errorf("got %v, %s", err, out)
	}
}

// If a file cannot be read, nothing is sent, and the problem is that of "validate".
func TestApplyUnreadable(t *testing.T) {
	t.Parallel()
	dir := storeFolder(t)
	nobody := filepath.Join(dir, "no.sock") // asking would fail
	for what, c := range map[string]struct {
		path, out, errOut string
		code              int
	}{
		"a link in a folder": {dir + "/all", "ERROR " + dir + "/all/link.yaml\n", "nothing was written", 1},
		"a link":             {dir + "/all/link.yaml", "", "link.yaml: no such file or directory", 2},
		"no file":            {dir + "/x.yaml", "", "no such file or directory", 2},
	} {
		code, out, errOut := result(t, "--socket", nobody, "apply", "-f", c.path)
		if code != c.code || !strings.HasPrefix(out, c.out) || !strings.Contains(errOut, c.errOut) {
			t.Errorf("%s: %d\n%s%s", what, code, out, errOut)
		}
	}
}

// After an interruption or a timeout, the message says how to find out what was written.
func TestApplyUncertain(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	dir := storeFolder(t)
	code, _, errOut := result(t, "--socket", socket, "--timeout", "100ms", "apply", "-f", dir+"/slow.yaml")
	if code != 1 || !strings.Contains(errOut, "within 100ms") ||
		!strings.Contains(errOut, "see \"ashorectl history\"") {
		t.Errorf("in vain: %d %s", code, errOut)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	var out, complaint bytes.Buffer
	if code := run(ctx, []string{"--socket", socket, "apply", "-f", dir + "/slow.yaml"}, &out, &complaint); code != 1 ||
		!strings.Contains(complaint.String(), "interrupted: all of it was written, or nothing") {
		t.Errorf("interrupted: %d %s", code, &complaint)
	}
}

// An ashored that ends during the request may have written; one that is not running has not.
func TestApplyEnded(t *testing.T) {
	t.Parallel()
	dir := storeFolder(t)
	short, err := os.MkdirTemp("", "ctl") // a socket's path must not be long
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	const find = "see \"ashorectl history\""
	path := short + "/ended.sock"
	if code, _, errOut := result(t, "--socket", path, "apply", "-f", dir+"/slow.yaml"); code != 1 ||
		strings.Contains(errOut, find) {
		t.Errorf("never ran: %d %s", code, errOut)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}()
	if code, _, errOut := result(t, "--socket", path, "apply", "-f", dir+"/slow.yaml"); code != 1 ||
		!strings.Contains(errOut, find) {
		t.Errorf("ended: %d %s", code, errOut)
	}
}

// endless is a standard input that never ends, until the test does.
type endless struct{ end <-chan struct{} }

func (e endless) Read([]byte) (int, error) { <-e.end; return 0, io.EOF }

// Reading standard input can be interrupted.
func TestInterruptedInput(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	defer close(end)
	for _, args := range [][]string{{"apply", "-f", "-"}, {"validate", "-f", "-"}} {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := newRoot()
		cmd.SetArgs(args)
		cmd.SetIn(endless{end})
		cancel()
		if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(),
			"interrupted before standard input ended") {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

// Completion offers kinds and names of the store.
func TestStoreCompletion(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	for args, want := range map[string]string{
		"delete virtualserv":      "virtualservice",
		"delete vs ":              "shop/web",
		"history vs ":             "shop/web",
		"rollback vs ":            "shop/web",
		"get vs -o ":              "name",
		"get vs --output=":        "yaml",
		"get servic":              "services",
		"delete vs -n shop ":      "web",
		"rollback vs shop/web 4 ": "",
	} {
		words := append([]string{"__complete", "--socket", socket}, strings.Split(args, " ")...)
		code, out, errOut := result(t, words...)
		first := fmt.Sprintf("\n%s\n", out)
		if code != 0 || want != "" && !strings.Contains(first, "\n"+want+"\n") || want == "" &&
			!strings.HasPrefix(out, ":") {
			t.Errorf("%q: %d, got\n%s%s", args, code, out, errOut)
		}
	}
}
