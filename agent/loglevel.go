package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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
		c.log.Info("the level of the log has changed", "level", level)
	}
	fmt.Fprintln(w, c.log.GetLevel())
}

// serveProxyLog sets levels of Envoy's loggers if the request has some, and answers with all levels.
func (c *control) serveProxyLog(w http.ResponseWriter, r *http.Request) {
	level := r.FormValue("level")
	levels, err := c.admin.Do(r.Context(), http.MethodPost, "/logging")
	if err == nil && level != "" {
		if text := levelProblem(level, string(levels)); text != "" {
			http.Error(w, text, http.StatusBadRequest)
			return
		}
		levels, err = c.admin.Do(r.Context(), http.MethodPost, loggingPath(level))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if _, err := w.Write(levels); err != nil {
		c.log.Debug("write the levels of Envoy's loggers", "error", err)
	}
}

// loggingPath sets one level for all of Envoy's loggers, or those of a list with colons.
func loggingPath(level string) string {
	name := "level"
	if strings.Contains(level, ":") {
		name = "paths"
	}
	return "/logging?" + name + "=" + url.QueryEscape(level)
}

// levelProblem is what is wrong with a level for all loggers, or a list, given Envoy's answer with
// its active loggers; empty: nothing.
func levelProblem(level, active string) string {
	var loggers []string
	for line := range strings.Lines(active) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			loggers = append(loggers, name)
		}
	}
	levels := strings.Fields("trace debug info warning error critical off")
	for part := range strings.SplitSeq(level, ",") {
		name, value, ok := strings.Cut(part, ":")
		switch {
		case !ok && part == level:
			value = level
		case !slices.Contains(loggers, name):
			return fmt.Sprintf("Envoy has no logger %s; the loggers are %s", name, strings.Join(loggers, ", "))
		}
		if !slices.Contains(levels, value) {
			return fmt.Sprintf("unknown level %q: want one of %s", value, strings.Join(levels, ", "))
		}
	}
	return ""
}

// LogLevel sets the level of the log of the agent of a state folder, until the agent ends, and
// returns it. An empty level changes nothing. Errors: no agent runs, or the level is unknown.
func LogLevel(ctx context.Context, state, level string) (string, error) {
	answer, err := askAgent(ctx, state, http.MethodPost, "/log?level="+url.QueryEscape(level))
	return string(answer), err
}

// ProxyLogLevel sets the level of Envoy's loggers until that Envoy ends, and returns all levels.
// level is one for all, such as "debug", or a list, such as "http:debug,rbac:trace". An empty one
// changes nothing. Errors: no agent runs, Envoy does not answer, or the level or a logger is unknown.
func ProxyLogLevel(ctx context.Context, state, level string) (string, error) {
	answer, err := askAgent(ctx, state, http.MethodPost, "/proxy-log?level="+url.QueryEscape(level))
	return string(answer), err
}
