package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
	}))
}

// shelf keeps copies in memory.
type shelf struct {
	mu       sync.Mutex
	contents map[string]map[string][]byte // guarded by mu
	full     bool                         // guarded by mu
}

func newShelf() *shelf { return &shelf{contents: map[string]map[string][]byte{}} }

func (s *shelf) LoadGroups(_ context.Context, source string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.contents[source]), nil
}

// fill has the shelf take nothing, or take again.
func (s *shelf) fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *shelf) SaveGroups(_ context.Context, source string, contents map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return syscall.ENOSPC
	}
	if s.contents[source] == nil {
		s.contents[source] = map[string][]byte{}
	}
	for name, c := range contents {
		if s.contents[source][name] = c; c == nil {
			delete(s.contents[source], name)
		}
	}
	return nil
}

// prefixes makes names that no other test of this run has.
var prefixes atomic.Int64

func newPrefix() string { return fmt.Sprintf("ashore/test-%d", prefixes.Add(1)) }

// site is where replicas of a test are.
type site struct {
	address, prefix string
	token, ca       string // files
	compact         uint64
	historyBytes    int
	log             hclog.Logger // nil: the test's
}

func newSite(a *testconsul.Agent) site {
	return site{address: "http://" + a.Address, prefix: newPrefix()}
}

func (s site) config(t testing.TB, kept *shelf) Config {
	if s.log == nil {
		s.log = testlog.New(t)
	}
	return Config{Options: Options{Address: s.address, Prefix: s.prefix, TokenFile: s.token,
		TLS: consulhttp.TLS{CAFile: s.ca}}, Replica: t.Name(), Kept: kept,
		CompactEntries: s.compact, HistoryBytes: s.historyBytes, Log: s.log}
}

// open is a replica that follows until the test ends.
func (s site) open(t testing.TB) *Store {
	t.Helper()
	store, _ := s.start(t, newShelf())
	return store
}

// start is a replica that follows until it is ended, or the test.
func (s site) start(t testing.TB, kept *shelf) (store *Store, end func()) {
	t.Helper()
	store, err := Open(context.Background(), s.config(t, kept))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- store.Follow(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("follow: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(end)
	return store, end
}

// kv asks an agent about the keys of a site, as an operator would.
func (s site) kv(t testing.TB, method, name, value string) string {
	t.Helper()
	path := s.address + "/v1/kv/" + s.prefix + "/" + name
	if method == http.MethodGet && !strings.Contains(name, "?") {
		path += "?raw"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	return ask(t, req)
}

// ask sends a request and returns the body of the answer.
func ask(t testing.TB, req *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not come to that", what)
		}
	}
}

func put(t testing.TB, s *Store, name, value string) {
	t.Helper()
	if err := s.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: name},
		Value: []byte(value), Version: record.Any}); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

func valueOf(t testing.TB, s *Store, name string) string {
	t.Helper()
	r, err := s.Records().Get(t.Context(), record.Key{Table: "t", Name: name})
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return string(r.Value)
}

// between stands between a store and Consul, and can lose requests and answers.
type between struct {
	*httptest.Server
	mu   sync.Mutex
	lose func(path string, body []byte) fate // guarded by mu; nil: all go through
	// say answers in place of Consul, or not; nil: never. Guarded by mu.
	say   func(r *http.Request, body []byte) (answer string, status int)
	until chan struct{} // set before the first request; closed when what is delayed goes on
}

// fate is what becomes of a request.
type fate uint8

const (
	passes     fate = iota
	unanswered      // Consul does it, and the answer is lost
	unheard         // it does not reach Consul, and there is no answer
	forbidden       // the token may not have it done
	delayed         // it waits for until
)

func newBetween(t testing.TB, address string) *between {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &between{until: make(chan struct{})}
	through := httputil.NewSingleHostReverseProxy(to)
	transport := &http.Transport{}
	through.Transport = transport
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		b.mu.Lock()
		f := passes
		if b.lose != nil {
			f = b.lose(r.URL.Path, body)
		}
		said, status := "", 0
		if b.say != nil {
			said, status = b.say(r, body)
		}
		b.mu.Unlock()
		if status > 0 {
			w.Header().Set("X-Consul-Index", "9")
			w.WriteHeader(status)
			if _, err := io.WriteString(w, said); err != nil {
				t.Error(err)
			}
			return
		}
		switch f {
		case unanswered:
			through.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case unheard:
			panic(http.ErrAbortHandler)
		case delayed:
			select {
			case <-b.until:
			case <-r.Context().Done():
			}
		case forbidden:
			http.Error(w, "Permission denied: token lacks permission 'key:write'", http.StatusForbidden)
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
		transport.CloseIdleConnections()
	})
	return b
}

// saying has somebody answer in place of Consul from now on: with a status of 0 he does not; nil:
// nobody does.
func (b *between) saying(f func(r *http.Request, body []byte) (answer string, status int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.say = f
}

// losing says what becomes of requests from now on; nil: all go through.
func (b *between) losing(f func(path string, body []byte) fate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lose = f
}

// manyConnections configures a Consul for more replicas than it takes of one address by default.
func manyConnections() map[string]any {
	return map[string]any{"limits": map[string]any{"http_max_conns_per_client": -1}}
}

// runFeed runs the feed of a store and returns its batches.
func runFeed(t *testing.T, s *Store) <-chan feed.Batch[*config.Object] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan feed.Batch[*config.Object]), make(chan error, 1)
	go func() { done <- s.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return out
}
func next(t *testing.T, out <-chan feed.Batch[*config.Object]) feed.Batch[*config.Object] {
	t.Helper()
	select {
	case b := <-out:
		return b
	case <-time.After(40 * time.Second):
		t.Fatal("the feed says nothing")
	}
	panic("not reached")
}
func number(t *testing.T, revision string) uint64 {
	t.Helper()
	n, err := config.ParseRevision(revision)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// addOne adds one to a count, again after a conflict.
func addOne(ctx context.Context, s record.Store) error {
	for {
		r, err := s.Get(ctx, record.Key{Table: "t", Name: "count"})
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(r.Value))
		err = s.Commit(ctx, record.Write{Key: r.Key, Value: strconv.AppendInt(nil, int64(n+1), 10), Version: r.Version})
		if !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
}
