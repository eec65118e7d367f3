package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// Without rules that redirect connections a workload that lives by them looks well, and is not: everybody reaches it in plaintext.
func TestRedirectionIsJudged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		redirection
		state, text, todo string
	}{
		"both ways":                      {redirection{15006, 15001, 3, 5, true, time.Hour}, stateOK, "3 connections came in by way of 15006, 5 went out by way of 15001, since Envoy started 1h0m0s ago", ""},
		"nothing at all":                 {redirection{15006, 15001, 0, 0, true, time.Hour}, stateWarn, "no connection has been redirected to 15006 since Envoy started 1h0m0s ago: callers may reach the application past Envoy", "check the rules"},
		"nothing, and it serves nobody":  {redirection{15006, 15001, 0, 0, false, time.Hour}, stateWarn, "no connection has been redirected to 15006", "check the rules"},
		"outgoing alone":                 {redirection{15006, 15001, 0, 5, true, time.Hour}, stateWarn, "(5 went out by way of 15001)", "check the rules"},
		"outgoing, and it serves nobody": {redirection{15006, 15001, 0, 5, false, time.Hour}, stateOK, "0 connections came in", ""},
		"incoming alone":                 {redirection{15006, 15001, 3, 0, true, time.Hour}, stateOK, "3 connections came in by way of 15006, 0 went out", ""},
		"just started":                   {redirection{15006, 15001, 0, 0, true, 5 * time.Second}, stateOK, "0 connections came in", ""},
		"not configured":                 {redirection{0, 0, 0, 0, false, time.Hour}, stateWarn, "takes no redirected connections yet", ""},
	} {
		state, todo, text := tc.judge("redirect")
		if state != tc.state || !strings.Contains(text, tc.text) || !strings.HasPrefix(todo, tc.todo) || tc.todo == "" && todo != "" {
			t.Errorf("%s: %s %q, to do %q; want %s %q, %q", name, state, text, todo, tc.state, tc.text, tc.todo)
		}
	}
}

// What counts is read from what Envoy 1.40 says: no connection for health or metrics, none twice.
func TestRedirected(t *testing.T) {
	t.Parallel()
	s := Default()
	s.State, s.Ports.Admin = stateFolder(t), Socket
	answers := map[string]string{
		"/server_info": `{"version": "x/1.40.0/Clean/RELEASE/BoringSSL", "state": "LIVE", "uptime_current_epoch": "90s"}`,
		"/listeners": `{"listener_statuses": [{"name": "virtualInbound", "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 15006}}},
			{"name": "virtualOutbound", "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 15001}}},
			{"name": "0.0.0.0_80", "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}}}]}`,
		"/stats": `{"stats": [{"name": "cluster.inbound|8080||.membership_total", "value": 1},
			{"name": "listener.0.0.0.0_15006.downstream_cx_total", "value": 4}, {"name": "listener.0.0.0.0_15006.worker_0.downstream_cx_total", "value": 4},
			{"name": "listener.0.0.0.0_15001.downstream_cx_total", "value": 2}, {"name": "listener.0.0.0.0_80.downstream_cx_total", "value": 3},
			{"name": "listener.[__1]_3306.downstream_cx_total", "value": 1}, {"name": "listener.agent.downstream_cx_total", "value": 100},
			{"name": "listener.metrics.downstream_cx_total", "value": 100}, {"name": "listener.admin.main_thread.downstream_cx_total", "value": 100}]}`,
	}
	l, err := listenUnix(filepath.Join(s.State, "admin.sock"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- serveHTTP(t.Context(), l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := w.Write([]byte(answers[r.URL.Path])); err != nil {
				t.Error(err)
			}
		}), testlog.New(t))
	}()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	got, err := newAdmin(&s).redirected(t.Context())
	if want := (redirection{15006, 15001, 4, 6, true, 90 * time.Second}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if err := os.Remove(filepath.Join(s.State, "admin.sock")); err != nil {
		t.Fatal(err)
	}
	if _, err := newAdmin(&s).redirected(t.Context()); err == nil {
		t.Error("an Envoy that does not answer")
	}
}
