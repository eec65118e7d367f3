package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// maxApplicationMetrics is the maximum size of the application's metrics, in bytes. Source: Istio.
const maxApplicationMetrics = 10 << 20

// applicationURLs returns where the application may serve its metrics: at the workload's address, as
// for probes, and on loopback. There are none unless annotations of the group ask for it.
func (a *Agent) applicationURLs() []string {
	text, path, _ := strings.Cut(a.config.Load().GetProxyMetadata()[resource.ApplicationMetrics], "/")
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil
	}
	own, loopback := a.settings.own(), netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if own.Is6() {
		loopback = netip.IPv6Loopback()
	}
	var out []string
	for _, ip := range []netip.Addr{own, loopback} {
		out = append(out, fmt.Sprintf("http://%s/%s", netip.AddrPortFrom(ip, uint16(port)), path))
	}
	return out
}

// applicationMetrics reads the application's metrics; nil if there are none.
func (a *Agent) applicationMetrics(ctx context.Context) ([]byte, error) {
	var errs []error
	for _, url := range a.applicationURLs() {
		body, err := readMetrics(ctx, url)
		if err == nil {
			return append(body, '\n'), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// readMetrics reads metrics in Prometheus' text format. It follows no redirects. The content type
// keeps pages of errors out, which would make the whole scrape invalid.
func readMetrics(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", metricsType)
	client := &http.Client{
		Timeout:       envoy.AdminTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxApplicationMetrics))
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err != nil:
		err = fmt.Errorf("read %s: %w", url, err)
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("%s answers %d", url, resp.StatusCode)
	case kind != "text/plain": // OpenMetrics has exemplars and other timestamps
		err = fmt.Errorf("%s answers with content of type %q, want text/plain", url, kind)
	}
	return body, errors.Join(err, resp.Body.Close())
}
