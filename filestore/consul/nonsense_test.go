package consul

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Whatever stands in Consul's place says, to whichever question: nothing crashes, nothing that was
// known is lost, what was acknowledged is there, and all goes on when Consul answers again.
func TestNonsense(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	one, many := []string{`null`, `[null]`}, []string{`{"Results":[null],"Errors":null}`,
		`{"Results":[{}],"Errors":[null]}`, `{"Errors":[null]}`}
	for question, q := range map[string]struct {
		is      func(r *http.Request, body []byte) bool
		answers []string
	}{
		"the head": {func(r *http.Request, _ []byte) bool { return strings.HasSuffix(r.URL.Path, "/head") }, one},
		"a tip":    {func(r *http.Request, _ []byte) bool { return strings.Contains(r.URL.Path, "/tip/") }, one},
		"an entry": {func(r *http.Request, _ []byte) bool { return strings.Contains(r.URL.Path, "/entry/0") }, one},
		"a chunk": {func(r *http.Request, _ []byte) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/0000")
		}, one},
		"entries":  {func(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte(`"get-or-empty"`)) }, many},
		"to write": {func(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte(`"cas"`)) }, many},
		"to write chunks": {func(r *http.Request, _ []byte) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/chunk/")
		}, one},
		"to delete": {func(_ *http.Request, body []byte) bool {
			return bytes.Contains(body, []byte(`"delete"`)) && !bytes.Contains(body, []byte(`"cas"`))
		}, many},
		"which keys": {func(r *http.Request, _ []byte) bool { return r.URL.Query().Has("keys") }, []string{`[null]`, `[""]`}},
	} {
		for _, answer := range q.answers {
			t.Run(question+" "+answer, func(t *testing.T) {
				t.Parallel()
				status := http.StatusOK
				if !strings.Contains(answer, "Results") && strings.Contains(answer, "Errors") {
					status = http.StatusConflict
				}
				testNonsense(t, newSite(agent), func(r *http.Request, body []byte) (string, int) {
					if !q.is(r, body) {
						return "", 0
					}
					return answer, status
				})
			})
		}
	}
}

func testNonsense(t *testing.T, s site, say func(*http.Request, []byte) (string, int)) {
	other := s.open(t)
	put(t, other, "x", "1")
	if _, err := other.Put(t.Context(), largeObject(), "test"); err != nil {
		t.Fatal(err)
	}
	way := newBetween(t, s.address)
	direct := s
	s.address = way.URL
	a := s.open(t)
	a.leaving.Store(true) // it does not ask for long what became of a write
	way.saying(say)
	names := func(name string) record.Key { return record.Key{Table: "t", Name: name} }
	wrote := map[string]bool{}
	for _, name := range []string{"small", "again"} {
		wrote[name] = a.Records().Commit(t.Context(), record.Write{Key: names(name), Value: []byte("1")}) == nil
		put(t, other, "y", name) // a has something to read
		put(t, other, "z", name)
	}
	if got := valueOf(t, a, "x"); got != "1" {
		t.Errorf("what was known is %q", got)
	}
	large := configtest.Object("another", "one.test")
	large.Annotations = map[string]string{"text": randomText(600 << 10)}
	_, err := a.Put(t.Context(), large, "test")
	wroteLarge := err == nil
	c := s.config(t, newShelf())
	c.Patience = time.Second
	if late, err := Open(t.Context(), c); err == nil {
		if got := valueOf(t, late, "x"); got != "1" {
			t.Errorf("who starts reads %q", got)
		}
		if err := late.Close(); err != nil {
			t.Error(err)
		}
	}
	swept, err := a.snapshot(t.Context())
	t.Logf("written: %v, large: %v; swept %d, %v; %q", wrote, wroteLarge, swept, err, a.Standing().Error)
	way.saying(nil)
	eventually(t, "all is well", func() bool { return a.Standing().Error == "" })
	put(t, a, "after", "1")
	late := direct.open(t)
	equalStates(t, fresh(t, a), fresh(t, late))
	for name, done := range wrote {
		if got := valueOf(t, late, name); done && got == "" {
			t.Errorf("%s was acknowledged, and is not there", name)
		}
	}
	if _, err := late.Get(t.Context(), large.Key); wroteLarge && err != nil {
		t.Errorf("the large one was acknowledged: %v", err)
	}
	if got := late.state.Load().records.At(recordKey(names("x"))); got == nil || string(got.content) != "1" {
		t.Errorf("in Consul there is %v", got)
	}
}
