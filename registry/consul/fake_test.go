package consul

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

// fake answers as Consul does about one service, web, until it is told to answer something else.
type fake struct {
	*httptest.Server

	mu sync.Mutex
	// the following are guarded by mu
	index   int
	answer  http.HandlerFunc // to everything; nil: as Consul does
	changed chan struct{}    // closed when index or answer are others
	asked   []url.Values
	tokens  []string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{index: 7, changed: make(chan struct{})}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// say has it answer something else from now on, also those who wait. Each of next is then closed when it is told something
// else again.
func (f *fake) say(answer http.HandlerFunc, next ...*chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
	f.index++
	close(f.changed)
	f.changed = make(chan struct{})
	for _, n := range next {
		*n = f.changed
	}
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked, f.tokens = append(f.asked, r.URL.Query()), append(f.tokens, r.Header.Get("X-Consul-Token"))
	changed := f.changed
	wait := r.URL.Query().Get("index") == fmt.Sprint(f.index)
	f.mu.Unlock()
	if wait {
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
	f.mu.Lock()
	answer, index := f.answer, f.index
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("X-Consul-Index", fmt.Sprint(index))
	w.Header().Set("X-Consul-Knownleader", "true")
	w.Header().Set("X-Consul-Lastcontact", "0")
	switch {
	case r.URL.Path == "/v1/catalog/services":
		fmt.Fprint(w, `{"consul":[],"web":["a"]}`)
	case r.URL.Path == "/v1/health/service/web":
		fmt.Fprintf(w, `[{"Node":{"Node":"n","Address":"10.0.0.1","Datacenter":"dc1"},"Service":{"ID":"web-1","Service":"web","Port":%d},"Checks":[]}]`, index)
	case strings.HasPrefix(r.URL.Path, "/v1/catalog/node/"):
		fmt.Fprint(w, `null`)
	default:
		fmt.Fprint(w, `[]`)
	}
}

// run runs a source until the test ends; what it sends arrives at the channel.
func run(t *testing.T, o Options) <-chan feed.Batch[registry.Instances] {
	t.Helper()
	s, err := New(Config{Name: "fake", Options: o, Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	return started(t, s)
}

// started runs a source until the test ends; what it sends arrives at the channel.
func started(t *testing.T, s *Source) <-chan feed.Batch[registry.Instances] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan feed.Batch[registry.Instances]), make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx, out); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return out
}

// next is the next batch for which ok is true; others are passed over.
func next(t *testing.T, out <-chan feed.Batch[registry.Instances], what string, ok func(feed.Batch[registry.Instances]) bool) feed.Batch[registry.Instances] {
	t.Helper()
	end := time.After(30 * time.Second)
	for {
		select {
		case b := <-out:
			if ok(b) {
				return b
			}
		case <-end:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Whatever answers in Consul's place, and however Consul refuses: it is told with what is wrong, and nothing goes away.
func TestNonsense(t *testing.T) {
	t.Parallel()
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, body) }
	}
	indexed := func(index, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Consul-Index", index)
			fmt.Fprint(w, body)
		}
	}
	tests := map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"nothing at all, and no index":    {text(200, `{}`), "no X-Consul-Index"},
		"null":                            {text(200, `null`), "no X-Consul-Index"},
		"an index of zero":                {indexed("0", `null`), "no X-Consul-Index"},
		"an index that is none":           {indexed("many", `null`), "no X-Consul-Index"},
		"a page":                          {text(200, `<html>sign in</html>`), "invalid character"},
		"the first half":                  {indexed("99", `{"web":["a"`), "unexpected EOF"},
		"another type":                    {indexed("99", `"web"`), "cannot unmarshal"},
		"a refusal of the token":          {text(403, "ACL not found"), "refuses the token (403, ACL not found)"},
		"too many connections":            {text(429, "Your IP is issuing too many concurrent connections"), "limits.http_max_conns_per_client"},
		"no leader":                       {text(500, "No cluster leader"), "answers 500 (No cluster leader): look whether its servers have a leader"},
		"not found":                       {text(404, "404 page not found"), "is it the address of Consul's HTTP interface"},
		"a Consul that is not Enterprise": {text(400, `Invalid query parameter: "partition" - Partitions are a Consul Enterprise feature`), "take partition and namespaces out of the settings"},
		"no such datacenter":              {text(500, "No path to datacenter"), "look whether the datacenter is called so"},
		"another question":                {text(400, "Invalid query"), "look at what the settings of the source have in it"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}, "answers 302 (<a href=\"http://169.254.169.254/\">Found</a>.): something sends on to elsewhere"},
		"control characters in a refusal": {text(500, "a\x1b[31m\r\nb"), "(a [31m b)"},
		"hang-up":                         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be asked: EOF"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			out := run(t, Options{Address: f.URL})
			next(t, out, "a full batch", func(b feed.Batch[registry.Instances]) bool { return b.Full && len(b.Updates) == 1 })
			f.say(tc.answer)
			next(t, out, "trouble", func(b feed.Batch[registry.Instances]) bool {
				if b.Full || len(b.Updates) > 0 {
					t.Fatalf("content because of nonsense: %+v", b)
				}
				return b.Standing != nil && strings.Contains(b.Standing.Error, tc.want)
			})
			f.say(nil)
			var now, well bool
			next(t, out, "the service as it is now, and no trouble", func(b feed.Batch[registry.Instances]) bool {
				now = now || len(b.Updates) == 1 && len(b.Updates[0].Items) == 2 && b.Updates[0].Items[0].Service.Ports[0].Number == 9
				well = b.Standing != nil && b.Standing.Error == "" || well && b.Standing == nil
				return now && well
			})
		})
	}
}

// What the settings name stands in each question, and nothing that they do not.
func TestQuestions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret-id\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		o    Options
		want url.Values
	}{
		"nothing":    {Options{}, url.Values{}},
		"enterprise": {Options{Namespaces: []string{"shop"}, Partition: "eu", TokenFile: file}, url.Values{"ns": {"shop"}, "partition": {"eu"}}},
		"stale":      {Options{Reads: "stale"}, url.Values{"stale": {""}}},
		"consistent": {Options{Reads: "consistent"}, url.Values{"consistent": {""}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			tc.o.Address = f.URL
			next(t, run(t, tc.o), "a full batch", func(b feed.Batch[registry.Instances]) bool { return b.Full })
			f.mu.Lock()
			defer f.mu.Unlock()
			for i, q := range f.asked {
				if q.Has("index") || tc.o.Reads == "stale" && !q.Has("stale") { // a wait; one that asks the leader
					continue
				}
				if got, want := q.Encode(), tc.want.Encode(); got != want {
					t.Errorf("asked with %q, want %q", got, want)
				}
				if want := map[bool]string{true: "secret-id"}[tc.o.TokenFile != ""]; f.tokens[i] != want {
					t.Errorf("the token %q, want %q", f.tokens[i], want)
				}
			}
		})
	}
}

// One flap among many services is one answer about one of them.
func TestOneAnswer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	out := run(t, Options{Address: f.URL, Services: []string{"web"}})
	next(t, out, "a full batch", func(b feed.Batch[registry.Instances]) bool { return b.Full })
	f.say(nil)
	b := next(t, out, "a change", func(b feed.Batch[registry.Instances]) bool { return len(b.Updates) > 0 })
	if b.Full || len(b.Updates) != 1 || b.Updates[0].Group != "web" || b.Since.IsZero() || b.Updates[0].AsOf.IsZero() {
		t.Errorf("got %+v", b)
	}
}

// A service is said to be from the source that the settings name.
func TestServiceOfSource(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	next(t, run(t, Options{Address: f.URL}), "a service from consul:fake", func(b feed.Batch[registry.Instances]) bool {
		for _, u := range b.Updates {
			for _, in := range u.Items {
				return in.Service.Source == "consul:fake"
			}
		}
		return false
	})
}
