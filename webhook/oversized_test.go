package webhook

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Who sends too much over HTTP/2 can send all of it before the answer ends the stream: a client
// that is told to stop may drop the text of the answer.
func TestOversizedTold(t *testing.T) {
	t.Parallel()
	w := run(t, Config{MaxBytes: 64 << 10})
	c := w.client(t, nil)
	for _, size := range []int64{64<<10 + 1, 1 << 20, 8 << 20} {
		for what, length := range map[string]int64{"told": size, "not told": -1} {
			body := &io.LimitedReader{R: endless{}, N: size}
			r, err := http.NewRequest(http.MethodPost, w.url+validatePath, io.NopCloser(body))
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = length
			resp, err := c.Do(r)
			if err != nil {
				t.Fatalf("%d bytes, %s: %v", size, what, err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge || resp.ProtoMajor != 2 || err != nil ||
				!strings.Contains(string(text), "webhook.maxBytes") {
				t.Errorf("%d bytes, %s: %s by %s, %q, %v", size, what, resp.Status, resp.Proto, text, err)
			}
			if body.N > 0 {
				t.Errorf("%d bytes, %s: %d were not taken", size, what, body.N)
			}
		}
	}
}
