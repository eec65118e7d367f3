package consul

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// What Consul does not take for what it is says nothing of other writes, and being asked too often
// is an outage. By the token alone it takes nothing at all.
func TestRefusals(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	for what, tc := range map[string]struct {
		status              int
		said                string
		refuses, outOfTouch bool
	}{
		"a value that is too large":        {status: http.StatusRequestEntityTooLarge, said: "Value for key is too large"},
		"a request that is not understood": {status: http.StatusBadRequest, said: "Failed to parse body"},
		"too many requests":                {status: http.StatusTooManyRequests, said: "Rate limit reached", outOfTouch: true},
		"a token that may not":             {status: http.StatusForbidden, said: "Permission denied", refuses: true},
		"a token in a transaction":         {status: http.StatusConflict, said: `{"Errors":[{"OpIndex":0,"What":"Permission denied: token lacks permission"}]}`, refuses: true},
		"a token that is none":             {status: http.StatusUnauthorized, said: "no token", refuses: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(agent)
			way := newBetween(t, s.address)
			var log bytes.Buffer
			s.address, s.log = way.URL, hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})
			a, end := s.start(t, newShelf())
			put(t, a, "x", "1")
			way.saying(func(r *http.Request, body []byte) (string, int) {
				if r.URL.Path == "/v1/txn" && bytes.Contains(body, []byte(`"cas"`)) {
					return tc.said, tc.status
				}
				return "", 0
			})
			w := record.Write{Key: record.Key{Table: "t", Name: "y"}, Value: []byte("2")}
			if err := a.Records().Commit(t.Context(), w); !errors.Is(err, ErrAway) ||
				!strings.Contains(err.Error(), s.address) {
				t.Errorf("got %v, want an error that names the Consul and says that nothing was written", err)
			}
			if got := a.Refused(); (got.Error != "") != tc.refuses {
				t.Errorf("it takes nothing: %+v, want %t", got, tc.refuses)
			}
			way.saying(nil)
			put(t, a, "y", "2")
			end()
			for text, want := range map[string]bool{"takes nothing": tc.refuses, "out of touch": tc.outOfTouch} {
				if got := strings.Contains(log.String(), text); got != want {
					t.Errorf("%q is logged: %t, want %t:\n%s", text, got, want, &log)
				}
			}
		})
	}
}
