package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// serveLog sets the level of the agent's log if the request has one, and answers with the level.
func (c *control) serveLog(w http.ResponseWriter, r *http.Request) {
	if text := r.FormValue("level"); text != "" {
		level := hclog.LevelFromString(text)
		if level == hclog.NoLevel || level == hclog.Off {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "unknown level %q: want trace, debug, info, warn or error\n", text)
			return
		}
		c.log.SetLevel(level)
	}
	fmt.Fprintln(w, c.log.GetLevel())
}

// serveProxyLog sets levels of Envoy's loggers if the request has some, and answers with all levels.
func (c *control) serveProxyLog(w http.ResponseWriter, r *http.Request) {
	path := "/logging"
	if level := r.FormValue("level"); strings.Contains(level, ":") {
		path += "?paths=" + url.QueryEscape(level)
	} else if level != "" {
		path += "?level=" + url.QueryEscape(level)
	}
	levels, err := c.admin.Do(r.Context(), http.MethodPost, path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if _, err := w.Write(levels); err != nil {
		c.log.Debug("write the levels of Envoy's loggers", "error", err)
	}
}

// LogLevel sets the level of the log of the agent of a state folder, until the agent ends, and
// returns it. An empty level changes nothing. Errors: no agent runs, or the level is unknown.
func LogLevel(ctx context.Context, state, level string) (string, error) {
	answer, err := askAgent(ctx, state, http.MethodPost, "/log?level="+url.QueryEscape(level))
	return string(answer), err
}

// ProxyLogLevel sets the level of Envoy's loggers until that Envoy ends, and returns all levels.
// level is one for all, such as "debug", or a list, such as "http:debug,rbac:trace". An empty one
// changes nothing. Errors: no agent runs, Envoy does not answer, or refuses the level.
func ProxyLogLevel(ctx context.Context, state, level string) (string, error) {
	answer, err := askAgent(ctx, state, http.MethodPost, "/proxy-log?level="+url.QueryEscape(level))
	return string(answer), err
}
