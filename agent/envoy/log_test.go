package envoy

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// Envoy's lines are logged with their level, however they are split, and the most severe one is
// remembered.
func TestLogWriter(t *testing.T) {
	t.Parallel()
	const text = "info\tstarting\nwarning\tgRPC closed: 14,\tx\ncritical\terror: bad\nsecond line\n\ninfo\tok"
	const want = `[INFO]  starting
[WARN]  gRPC closed: 14,	x
[ERROR] error: bad
[ERROR] second line
[INFO]  ok
`
	for _, size := range []int{1, 7, len(text)} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			w := &logWriter{log: hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true, Level: hclog.Trace})}
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				if got, err := w.Write([]byte(rest[:n])); got != n || err != nil {
					t.Fatalf("write: %d, %v", got, err)
				}
				rest = rest[n:]
			}
			w.Close()
			if out.String() != want {
				t.Errorf("got:\n%s\nwant:\n%s", &out, want)
			}
			if w.worst != "second line" {
				t.Errorf("worst %q, want %q", w.worst, "second line")
			}
		})
	}
}
