package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/internal/task"
)

// Names of Envoy's listeners for health and metrics.
const (
	HealthListener  = "agent"
	MetricsListener = "metrics"
)

const (
	// AdminTimeout is the maximum time of Do.
	AdminTimeout = 2 * time.Second
	// maxAdminAnswer is the maximum size of an answer, in bytes. The certificates of all clusters
	// of 10,000 services have 16 MB.
	maxAdminAnswer = 64 << 20
	// maxAdminError is the maximum size of an error's text, in bytes.
	maxAdminError = 4 << 10
)

// Admin is Envoy's admin interface.
type Admin struct{ client *http.Client }

// NewAdmin returns the interface at a unix socket.
func NewAdmin(socket string) *Admin { return &Admin{UnixClient(socket, 0)} }

// UnixClient returns a client of the HTTP server at a unix socket. The host of its URLs is ignored.
// Zero: no timeout.
func UnixClient(path string, timeout time.Duration) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// Do sends a request and returns the answer. A status other than 200 is an error.
func (a *Admin) Do(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, AdminTimeout)
	defer cancel()
	answer, err := a.Open(ctx, method, path)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(answer, maxAdminAnswer))
	if err = errors.Join(err, answer.Close()); err != nil {
		return nil, fmt.Errorf("read Envoy's answer to %s: %w", path, err)
	}
	return body, nil
}

// Open sends a request and returns the answer, which the caller closes. A status other than 200 is
// an error.
func (a *Admin) Open(ctx context.Context, method, path string) (io.ReadCloser, error) {
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
	return nil, errors.Join(fmt.Errorf("envoy answers %d to %s: %s", resp.StatusCode, path,
		strings.TrimSpace(string(body))), err)
}

// Stats returns the counters and gauges whose names match a regular expression.
func (a *Admin) Stats(ctx context.Context, filter string) (map[string]uint64, error) {
	body, err := a.Do(ctx, http.MethodGet, "/stats?filter="+url.QueryEscape(filter))
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

// Drain makes Envoy ask every connection to close with its next response. It waits until none is
// open, at most for the given time, and returns how many still are.
func (a *Admin) Drain(ctx context.Context, most time.Duration) (left uint64, err error) {
	if _, err := a.Do(ctx, http.MethodPost, "/drain_listeners?graceful&skip_exit"); err != nil {
		return 0, err
	}
	return waitClosed(ctx, most, a.connections), nil
}

// drainPoll is the interval at which open connections are counted.
const drainPoll = 200 * time.Millisecond

// waitClosed waits until no connection is open, at most for the given time. It returns how many
// still are. An Envoy that does not answer has ended.
func waitClosed(ctx context.Context, most time.Duration, open func(context.Context) (uint64, error)) uint64 {
	end := time.Now().Add(most)
	for {
		left, err := open(ctx)
		wait := min(drainPoll, time.Until(end))
		switch {
		case err != nil:
			return 0
		case left == 0 || wait <= 0 || !task.Sleep(ctx, wait):
			return left
		}
	}
}

// connections counts the open connections to Envoy's listeners, except those for health and
// metrics.
func (a *Admin) connections(ctx context.Context) (uint64, error) {
	stats, err := a.Stats(ctx, `^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return 0, err
	}
	var sum uint64
	for name, n := range stats {
		listener := strings.TrimSuffix(strings.TrimPrefix(name, "listener."), ".downstream_cx_active")
		switch {
		case listener == HealthListener, listener == MetricsListener, strings.HasPrefix(listener, "admin"):
		case strings.Contains(listener, ".worker_"), strings.HasSuffix(listener, ".main_thread"): // counted in the whole
		default:
			sum += n
		}
	}
	return sum, nil
}

// Listeners returns the addresses where Envoy listens, host:port.
func (a *Admin) Listeners(ctx context.Context) (map[string]bool, error) {
	all := &adminv3.Listeners{}
	err := a.read(ctx, "/listeners?format=json", all)
	out := map[string]bool{}
	for _, l := range all.GetListenerStatuses() {
		at := l.GetLocalAddress().GetSocketAddress()
		out[net.JoinHostPort(at.GetAddress(), strconv.FormatUint(uint64(at.GetPortValue()), 10))] = true
	}
	return out, err
}

// ServerInfo returns Envoy's description of itself.
func (a *Admin) ServerInfo(ctx context.Context) (*adminv3.ServerInfo, error) {
	info := &adminv3.ServerInfo{}
	return info, a.read(ctx, "/server_info", info)
}

// Release is the release in a version of Envoy, "<commit>/1.40.0/Clean/RELEASE/BoringSSL".
func Release(version string) string {
	if parts := strings.Split(version, "/"); len(parts) > 1 {
		return parts[1]
	}
	return version
}

// read reads an answer in JSON.
func (a *Admin) read(ctx context.Context, path string, answer proto.Message) error {
	body, err := a.Do(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, answer); err != nil {
		return fmt.Errorf("read Envoy's answer to %s: %w", path, err)
	}
	return nil
}
