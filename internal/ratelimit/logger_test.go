package ratelimit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := NewLogger(hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true}))
		for range 1000 {
			l.Log(hclog.Info, "web-1", "stream refused")
		}
		l.Log(hclog.Info, "web-1", "proxy connected")
		l.Log(hclog.Warn, "web-2", "stream refused", "error", "none")
		time.Sleep(time.Minute)
		for range 1000 {
			l.Log(hclog.Info, "web-1", "stream refused", "error", "none")
		}
		const want = `[INFO]  stream refused
[INFO]  stream refused
[INFO]  proxy connected
[WARN]  stream refused: error=none
[INFO]  stream refused: error=none not logged before=998
`
		if got := out.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}
