package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// adminTimeout bounds a request to Envoy's admin interface whose answer is read at once.
	adminTimeout = 2 * time.Second
	// maxAdminAnswer bounds what is read of an answer. The certificates of every cluster of 10,000
	// services are 16 MB.
	maxAdminAnswer = 64 << 20
	// maxAdminError bounds what is read of an error.
	maxAdminError = 4 << 10
)

// admin asks Envoy's admin interface.
type admin struct{ client *http.Client }

// newAdmin reaches the interface of an Envoy with these settings.
func newAdmin(s *Settings) *admin {
	return &admin{unixClient(s.adminSocket(), 0)}
}

// unixClient returns a client of the HTTP server at a unix socket; the host of its URLs is ignored.
// Zero: no timeout.
func unixClient(path string, timeout time.Duration) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// do sends one request and returns its answer. An answer other than 200 is an error.
func (a *admin) do(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	answer, err := a.open(ctx, method, path)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(answer, maxAdminAnswer))
	if err = errors.Join(err, answer.Close()); err != nil {
		return nil, fmt.Errorf("read Envoy's answer to %s: %w", path, err)
	}
	return body, nil
}

// open sends one request and returns its answer, for the caller to close. An answer other than 200
// is an error.
func (a *admin) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminError))
	err = errors.Join(err, resp.Body.Close())
	return nil, errors.Join(fmt.Errorf("Envoy answers %d to %s: %s", resp.StatusCode, path,
		strings.TrimSpace(string(body))), err)
}

// stats are the counters and gauges whose names match the regular expression filter.
func (a *admin) stats(ctx context.Context, filter string) (map[string]uint64, error) {
	body, err := a.do(ctx, http.MethodGet, "/stats?filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil { // else a text or a histogram
			out[name] = n
		}
	}
	return out, nil
}

// drain makes Envoy tell every connection to go and close its listeners at the end of its drain
// time.
func (a *admin) drain(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodPost, "/drain_listeners?graceful&skip_exit")
	return err
}

// connections is how many connections are open to Envoy's listeners, those for health and metrics
// not counted.
func (a *admin) connections(ctx context.Context) (uint64, error) {
	stats, err := a.stats(ctx, `^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return 0, err
	}
	var sum uint64
	for name, n := range stats {
		listener := strings.TrimSuffix(strings.TrimPrefix(name, "listener."), ".downstream_cx_active")
		switch {
		case listener == listenerHealth, listener == listenerMetrics, strings.HasPrefix(listener, "admin"):
		case strings.Contains(listener, ".worker_"), strings.HasSuffix(listener, ".main_thread"): // counted in the whole
		default:
			sum += n
		}
	}
	return sum, nil
}

// serverInfo is what Envoy says of itself.
type serverInfo struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Options struct {
		Epoch int `json:"restart_epoch"`
	} `json:"command_line_options"`
}

// version is the release alone; the whole is "<commit>/1.40.0/Clean/RELEASE/BoringSSL".
func (i serverInfo) version() string {
	if parts := strings.Split(i.Version, "/"); len(parts) > 1 {
		return parts[1]
	}
	return i.Version
}

func (a *admin) serverInfo(ctx context.Context) (serverInfo, error) {
	var info serverInfo
	body, err := a.do(ctx, http.MethodGet, "/server_info")
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return info, fmt.Errorf("read what Envoy says of itself: %w", err)
	}
	return info, nil
}
