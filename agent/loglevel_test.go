package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/agent/envoy"
)

// The levels of the agent's and of Envoy's log change by the agent's socket, without a restart.
func TestLogLevels(t *testing.T) {
	t.Parallel()
	state, err := os.MkdirTemp("", "log") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	admin, err := listenUnix(filepath.Join(state, "admin.sock"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	stock := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "active loggers:\n  http: info\n  rbac: info\n\n%s %s?%s\n", r.Method, r.URL.Path, r.URL.RawQuery)
	}))
	stock.Listener = admin
	stock.Start()
	defer stock.Close()
	l, err := listenUnix(filepath.Join(state, agentSocket), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: io.Discard})
	c := &control{log: log.Named("agent"), admin: envoy.NewAdmin(filepath.Join(state, "admin.sock"))}
	go func() { done <- c.Run(ctx, l) }()
	for _, tc := range []struct {
		set         func(ctx context.Context, state, level string) (string, error)
		level, want string
	}{
		{LogLevel, "", "info"},
		{LogLevel, "debug", "debug"},
		{LogLevel, "loud", `unknown level "loud": want trace`},
		{ProxyLogLevel, "", "POST /logging?"},
		{ProxyLogLevel, "debug", "POST /logging?level=debug"},
		{ProxyLogLevel, "http:debug,rbac:trace", "POST /logging?paths=http%3Adebug%2Crbac%3Atrace"},
		{ProxyLogLevel, "loud", `unknown level "loud": want one of trace, debug, info, warning`},
		{ProxyLogLevel, "http:loud", `unknown level "loud"`},
		{ProxyLogLevel, "http:debug,foo:debug", "Envoy has no logger foo; the loggers are http, rbac"},
		{ProxyLogLevel, "http:debug,rbac", `unknown level ""`},
	} {
		got, err := tc.set(t.Context(), state, tc.level)
		failed := strings.HasPrefix(tc.want, "unknown") || strings.HasPrefix(tc.want, "Envoy has")
		one := !failed || err != nil && strings.HasPrefix(err.Error(), tc.want) && !strings.Contains(err.Error(), "\n")
		if text := fmt.Sprint(got, err); !strings.Contains(text, tc.want) || (err != nil) != failed || !one {
			t.Errorf("%q: got %q, %v; want %q", tc.level, got, err, tc.want)
		}
	}
	if log.Named("relay").GetLevel() != hclog.Debug {
		t.Error("the level of other parts of the agent stays")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := LogLevel(t.Context(), state, ""); err == nil {
		t.Error("no error without an agent")
	}
}
