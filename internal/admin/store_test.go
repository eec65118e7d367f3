package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// fakeStore answers with what it was asked.
type fakeStore struct {
	mu     sync.Mutex
	asked  []string // guarded by mu
	err    error    // set once
	enter  chan struct{}
	leave  chan struct{}
	broken chan error // why pieces ended early
}

func (f *fakeStore) ask(what string, rest ...any) {
	b, err := json.Marshal(rest)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what+" "+string(b))
}

func (f *fakeStore) pieces(what string, p Pieces, o StoreOptions) (Written, error) {
	if f.enter != nil {
		f.enter <- struct{}{}
		<-f.leave
	}
	var got []Piece
	for piece, err := range p {
		if err != nil {
			f.broken <- err
			return Written{}, err
		}
		got = append(got, piece)
	}
	f.ask(what, got, o)
	return Written{Revision: "7", Preview: o.Preview, Changes: []ObjectChange{{Ref: Ref{"Gateway", "shop", "a"},
		Action: Created}}}, f.err
}

func (f *fakeStore) Stored(_ context.Context, kind, namespace, name string) ([]Object, error) {
	f.ask("stored", kind, namespace, name)
	return []Object{{Kind: kind, Spec: json.RawMessage(`{}`)}}, f.err
}

func (f *fakeStore) Apply(_ context.Context, p Pieces, o StoreOptions, _ string) (Written, error) {
	return f.pieces("apply", p, o)
}

func (f *fakeStore) Delete(_ context.Context, p Pieces, o StoreOptions, _ string) (Written, error) {
	return f.pieces("delete", p, o)
}

func (f *fakeStore) Rollback(_ context.Context, r RollbackRequest, o StoreOptions, _ string) (Written, error) {
	f.ask("rollback", r, o)
	return Written{Revision: "8"}, f.err
}

func (f *fakeStore) History(_ context.Context, r HistoryRequest) (StoreHistory, error) {
	f.ask("history", r)
	return StoreHistory{Latest: "9", Since: "1", Revisions: []StoreRevision{}}, f.err
}

// serveStore starts a server of a store and returns a client of it, its socket and what it records.
func serveStore(t testing.TB, f *fakeStore, role Role) (*Client, string, func() []audit.Event) {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	path := dir + "/admin.sock"
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var events []audit.Event
	f.broken = make(chan error, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := New(Config{Listener: l, Backend: &fake{}, Store: f, Log: testlog.New(t), Role: func(Peer) Role { return role },
		Record: func(e audit.Event) { mu.Lock(); defer mu.Unlock(); events = append(events, e) }})
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return NewClient(path), path, func() []audit.Event { mu.Lock(); defer mu.Unlock(); return events }
}

// Questions and options arrive as they were asked, bytes that are no text too, and answers come
// back.
func TestStoreRoundTrip(t *testing.T) {
	t.Parallel()
	f := &fakeStore{}
	c, _, _ := serveStore(t, f, Operator)
	ctx := t.Context()
	list := []Piece{{File: "a.yaml", Data: []byte("a: \xff\x00")}, {Ref: &Ref{"vs", "shop", "web"}}}
	sent := func(yield func(Piece, error) bool) { _ = yield(list[0], nil) && yield(list[1], nil) }
	want := Written{Revision: "7", Changes: []ObjectChange{{Ref: Ref{"Gateway", "shop", "a"}, Action: Created}}}
	got, err := c.Apply(ctx, sent, StoreOptions{At: "6", Force: true})
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("apply: %v\n%s", err, d)
	}
	want.Preview = true
	got, err = c.Delete(ctx, sent, StoreOptions{Preview: true, MissingOK: true})
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("delete: %v\n%s", err, d)
	}
	if _, err := c.Rollback(ctx, RollbackRequest{Revision: "3", Ref: &Ref{"vs", "shop", "web"}},
		StoreOptions{}); err != nil {
		t.Error(err)
	}
	if h, err := c.History(ctx, HistoryRequest{Ref: &Ref{"vs", "shop", "web"}, Limit: 4, Differences: true,
		All: true}); err != nil || h.Latest != "9" {
		t.Errorf("history: %+v, %v", h, err)
	}
	if _, err := c.Stored(ctx, "vs", "shop", ""); err != nil {
		t.Error(err)
	}
	d := cmp.Diff([]string{
		`apply [[{"file":"a.yaml","data":"YTog/wA="},{"ref":{"kind":"vs","namespace":"shop","name":"web"}}],{"Preview":false,"At":"6","Force":true,"MissingOK":false}]`,
		`delete [[{"file":"a.yaml","data":"YTog/wA="},{"ref":{"kind":"vs","namespace":"shop","name":"web"}}],{"Preview":true,"At":"","Force":false,"MissingOK":true}]`,
		`rollback [{"revision":"3","ref":{"kind":"vs","namespace":"shop","name":"web"}},{"Preview":false,"At":"","Force":false,"MissingOK":false}]`,
		`history [{"Ref":{"kind":"vs","namespace":"shop","name":"web"},"Limit":4,"Differences":true,"All":true}]`,
		`stored ["vs","shop",""]`,
	}, f.asked)
	if d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
}

// A viewer sees what would be written, and writes nothing; nothing of the files is read then.
func TestStoreRoles(t *testing.T) {
	t.Parallel()
	f := &fakeStore{}
	c, _, events := serveStore(t, f, Viewer)
	ctx := t.Context()
	endless := func(yield func(Piece, error) bool) {
		for yield(Piece{File: "a.yaml", Data: make([]byte, 1<<20)}, nil) {
		}
	}
	one := func(yield func(Piece, error) bool) { yield(Piece{File: "a.yaml"}, nil) }
	_, applied := c.Apply(ctx, endless, StoreOptions{})
	_, deleted := c.Delete(ctx, endless, StoreOptions{})
	_, back := c.Rollback(ctx, RollbackRequest{Revision: "1"}, StoreOptions{})
	for what, err := range map[string]error{"apply": applied, "delete": deleted, "rollback": back} {
		if !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "operator") {
			t.Errorf("%s: got %v, want ErrForbidden that names the role", what, err)
		}
	}
	if n := len(events()); n != 3 || len(f.asked) != 0 {
		t.Errorf("%d refusals are recorded, and asked was %q; want 3 and nothing", n, f.asked)
	}
	_, applied = c.Apply(ctx, one, StoreOptions{Preview: true})
	_, deleted = c.Delete(ctx, one, StoreOptions{Preview: true})
	_, back = c.Rollback(ctx, RollbackRequest{Revision: "1"}, StoreOptions{Preview: true})
	_, history := c.History(ctx, HistoryRequest{})
	_, stored := c.Stored(ctx, "", "", "")
	if err := errors.Join(applied, deleted, back, history, stored); err != nil {
		t.Error(err)
	}
}

// Why something was refused arrives whole.
func TestStoreRefusal(t *testing.T) {
	t.Parallel()
	want := &Refusal{Text: "2 errors", Is: ErrInvalid,
		Problems: []feed.Problem{{Severity: feed.Error, File: "a.yaml", Line: 3, Field: "spec.hosts",
			Text: "is missing"}},
		Conflicts: []Conflict{{Ref: Ref{"Gateway", "shop", "a"}, Revision: "6", Who: "x", When: time.Unix(1, 0).UTC()}}}
	c, _, _ := serveStore(t, &fakeStore{err: want}, Operator)
	_, err := c.Apply(t.Context(), func(yield func(Piece, error) bool) { yield(Piece{File: "a"}, nil) }, StoreOptions{})
	got, ok := errors.AsType[*Refusal](err)
	if !ok || !errors.Is(err, ErrInvalid) || err.Error() != "2 errors" {
		t.Fatalf("got %v, want the refusal", err)
	}
	want.Is, got.Is = nil, nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What a caller cannot supply any more is not taken for all: the store learns that the rest is
// missing.
func TestStoreCutOff(t *testing.T) {
	t.Parallel()
	f := &fakeStore{}
	c, path, _ := serveStore(t, f, Operator)
	want := errors.New("the disk is gone")
	_, err := c.Apply(t.Context(), func(yield func(Piece, error) bool) {
		if yield(Piece{File: "a.yaml", Data: make([]byte, 1<<20)}, nil) {
			yield(Piece{}, want)
		}
	}, StoreOptions{})
	if !errors.Is(err, want) {
		t.Errorf("got %v, want the caller's own error", err)
	}
	if err := <-f.broken; err == nil {
		t.Error("the store was not told")
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Apply(ctx, func(yield func(Piece, error) bool) {
		if yield(Piece{File: "a.yaml"}, nil) {
			cancel() // ctrl-C
			for yield(Piece{File: "b.yaml"}, nil) {
			}
		}
	}, StoreOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v", err)
	}
	if err := <-f.broken; err == nil {
		t.Error("the store was not told of the interruption")
	}
	for _, body := range []string{`{"file":"a.yaml","da`, `{"file":"a.yaml"} x`, `{"fiel":1}`, `[1]`} {
		if text := postRaw(t, path, body); !strings.Contains(text, " 400 ") && !strings.Contains(text, "400 Bad") {
			t.Errorf("%s: got %s", body, text)
		}
		<-f.broken
	}
	if len(f.asked) != 0 {
		t.Errorf("asked was %q, want nothing", f.asked)
	}
}

// postRaw sends a body as it is, without waiting to be asked for it.
func postRaw(t *testing.T, path, body string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
	resp, err := client.Post("http://x/v1/store/apply", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status + " " + string(b)
}

// More than is taken is refused, however it is cut.
func TestStoreTooLarge(t *testing.T) {
	t.Parallel()
	f := &fakeStore{}
	c, _, _ := serveStore(t, f, Operator)
	data := make([]byte, 8<<20)
	sent := 0
	_, err := c.Apply(t.Context(), func(yield func(Piece, error) bool) {
		for range 2 * MaxApply / len(data) {
			if !yield(Piece{File: "a.yaml", Data: data}, nil) {
				return
			}
			sent++
		}
	}, StoreOptions{})
	if err == nil || len(f.asked) > 0 {
		t.Errorf("got %v, asked %q", err, f.asked)
	}
	if told := <-f.broken; !errors.Is(told, ErrInvalid) || !strings.Contains(told.Error(), "64 MiB") {
		t.Errorf("the store was told %v", told)
	}
}

// One write at a time; the others wait. Reads go on.
func TestOneWriteAtATime(t *testing.T) {
	t.Parallel()
	f := &fakeStore{enter: make(chan struct{}), leave: make(chan struct{})}
	c, _, _ := serveStore(t, f, Admin)
	one := func(yield func(Piece, error) bool) { yield(Piece{File: "a.yaml"}, nil) }
	const writers = 3
	errs := make(chan error, writers)
	for range writers {
		go func() {
			_, err := c.Apply(t.Context(), one, StoreOptions{})
			errs <- err
		}()
	}
	for i := range writers {
		<-f.enter
		if _, err := c.Stored(t.Context(), "", "", ""); err != nil {
			t.Error(err)
		}
		select {
		case <-f.enter:
			t.Fatalf("a second write began during write %d", i)
		case f.leave <- struct{}{}:
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Previews do not delay writes, and one runs at a time.
func TestPreviewsDoNotDelayWrites(t *testing.T) {
	t.Parallel()
	f := &fakeStore{enter: make(chan struct{}), leave: make(chan struct{})}
	c, _, _ := serveStore(t, f, Admin)
	one := func(yield func(Piece, error) bool) { yield(Piece{File: "a.yaml"}, nil) }
	const previews = 4
	errs := make(chan error, previews+1)
	for range previews {
		go func() {
			_, err := c.Apply(t.Context(), one, StoreOptions{Preview: true})
			errs <- err
		}()
	}
	<-f.enter
	go func() {
		_, err := c.Apply(t.Context(), one, StoreOptions{})
		errs <- err
	}()
	select {
	case <-f.enter:
	case err := <-errs:
		t.Fatalf("the writer was turned away: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the writer waits for those who look")
	}
	for left := previews + 1; left > 0; {
		select {
		case <-f.enter:
		case f.leave <- struct{}{}:
		case err := <-errs:
			if left--; err != nil {
				t.Error(err)
			}
		}
	}
}

// Who may only look has less looked at than who may write.
func TestStoreViewed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		role        Role
		size, files int
		refused     bool
	}{
		"viewer":                 {Viewer, maxViewed / 8, 8, false},
		"viewer, a large file":   {Viewer, 2 * maxViewed, 1, true},
		"viewer, many files":     {Viewer, maxViewed / 8, 12, true},
		"operator, a large file": {Operator, 2 * maxViewed, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, _, _ := serveStore(t, &fakeStore{}, c.role)
			_, err := client.Apply(t.Context(), func(yield func(Piece, error) bool) {
				for range c.files {
					if !yield(Piece{File: "a.yaml", Data: make([]byte, c.size)}, nil) {
						return
					}
				}
			}, StoreOptions{Preview: true})
			if errors.Is(err, ErrInvalid) != c.refused || !c.refused && err != nil {
				t.Errorf("got %v, want a refusal: %v", err, c.refused)
			}
		})
	}
}

// Options that make no sense are refused.
func TestStoreOptions(t *testing.T) {
	t.Parallel()
	c, _, _ := serveStore(t, &fakeStore{}, Operator)
	for _, path := range []string{"apply?force=x", "apply?at=" + strings.Repeat("1", 30), "preview/apply?missingOK=2",
		"rollback?force=x"} {
		resp, err := c.do(t.Context(), http.MethodPost, "/v1/store/"+strings.Split(path, "?")[0], mustQuery(t, path),
			RollbackRequest{})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, %v", path, resp, err)
		}
	}
	for _, q := range []HistoryRequest{{Limit: -1}} {
		if _, err := c.History(t.Context(), q); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: got %v", q, err)
		}
	}
}

func mustQuery(t *testing.T, path string) map[string][]string {
	t.Helper()
	_, text, _ := strings.Cut(path, "?")
	name, value, _ := strings.Cut(text, "=")
	return map[string][]string{name: {value}}
}

// No body makes reading it panic or go on for ever, and what was read is what was sent.
func FuzzPieces(f *testing.F) {
	f.Add([]byte(`{"file":"a.yaml","data":"YQ=="}` + "\n" + `{"ref":{"kind":"vs","namespace":"a","name":"b"}}`))
	f.Add([]byte(`{"file":"a.yaml","data":"YQ=="`))
	f.Add([]byte(`{"data":"\u0000"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := http.NewRequest(http.MethodPost, "/v1/store/apply", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		var first []Piece
		for p, err := range pieces(r) {
			if err != nil {
				if !errors.Is(err, ErrInvalid) {
					t.Errorf("got %v, want ErrInvalid", err)
				}
				return
			}
			first = append(first, p)
		}
		if err := sendPieces(&again, func(yield func(Piece, error) bool) {
			for _, p := range first {
				if !yield(p, nil) {
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		r.Body = io.NopCloser(&again)
		i := 0
		for p, err := range pieces(r) {
			if err != nil || !cmp.Equal(p, first[i], cmp.Transformer("bytes",
				func(b []byte) string { return string(b) })) {
				t.Fatalf("piece %d: %v, %v; want %v", i, p, err, first[i])
			}
			i++
		}
	})
}
