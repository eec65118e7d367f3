package examples

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// requestTimeout is the timeout of one request.
const requestTimeout = 10 * time.Second

// answers makes one request and says what is wrong with the answer: want is the backend's name and
// the path that it saw; empty when no backend is to answer. Host is the URL's own when empty.
func answers(transport http.RoundTripper, url, host string, status int, want string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if host != "" {
		req.Host = host
	}
	resp, err := (&http.Client{Transport: transport, Timeout: requestTimeout}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	got := ""
	var seen harness.Seen
	if json.Unmarshal(body, &seen) == nil && seen.Backend != "" {
		got = seen.Backend + " " + seen.Path
	}
	if resp.StatusCode != status || got != want {
		return fmt.Errorf("got %d from %q, want %d from %q", resp.StatusCode, got, status, want)
	}
	return nil
}
