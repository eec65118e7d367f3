package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// call is a line of a step calls:
//
//	FROM [xN] METHOD URL [NAME=VALUE...] -> RESULT [CHECK...]
//
// FROM connects to the port of the URL:
//
//	client   of the sidecar of an application, which routes by host
//	outside  of the ingress gateway; outside@ADDRESS from that address
//	legacy   of the workload web, without mutual TLS
//	other    of the workload web, as a workload of namespace bar
//	tunnel   of an HTTP proxy that the sidecar of client routes to, by CONNECT
//
// xN sends N requests, and x-N of them at once. METHOD is that of HTTP, or TCP, which exchanges a
// line. NAME=VALUE is a header, or cert=HOST, the client's certificate, or tls=1.2.
//
// RESULT is the status, open or closed, with + several, all of which occur. CHECK is the name of
// the backend that answers, with =N% its share of requests, or
//
//	saw:HEADER~REGEXP  a header that the backend saw, host and path among them
//	got:HEADER~REGEXP  a header of the response
//	mirror:NAME        the backend that sees the request too
//	after:DURATION     the shortest time to the response
//	counted:REGEXP     counters of the Envoy of web that are not 0
//
// Other lines are "fail BACKEND" and "recover BACKEND".
type call struct {
	line string
	run  func() error
}

// caller makes the requests of one call.
type caller struct {
	w         *world
	from      string
	times     int
	together  bool
	method    string
	url       *url.URL
	header    http.Header
	cert, tls string // of the client, and the highest version of TLS

	results []string // wanted
	checks  []string
}

// outcome is what came of one request.
type outcome struct {
	result string // the status, "open" or "closed"
	err    error  // of "closed"
	answer harness.Answer
	took   time.Duration
}

const requestTimeout = 10 * time.Second

func (w *world) parse(t *testing.T, line string) call {
	t.Helper()
	if first, _, _ := strings.Cut(line, " "); first == "fail" || first == "recover" {
		return call{line, w.fault(t, line)}
	}
	what, want, ok := strings.Cut(line, " -> ")
	words, wants := strings.Fields(what), strings.Fields(want)
	c := caller{w: w, times: 1, header: http.Header{}}
	c.from, words = words[0], words[1:]
	if n, found := strings.CutPrefix(words[0], "x"); found {
		n, c.together = strings.CutPrefix(n, "-")
		c.times, _ = strconv.Atoi(n)
		words = words[1:]
	}
	if !ok || len(words) < 2 || len(wants) < 1 || c.times < 1 {
		t.Fatalf("cannot read %q", line)
	}
	c.method, c.results, c.checks = words[0], strings.Split(wants[0], "+"), wants[1:]
	var err error
	if c.url, err = url.Parse(words[1]); err != nil {
		t.Fatal(err)
	}
	for _, word := range words[2:] {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "cert":
			c.cert = value
		case "tls":
			c.tls = value
		default:
			c.header.Set(name, strings.ReplaceAll(value, "%20", " "))
		}
	}
	return call{line, c.run}
}

// run makes the requests and checks what came.
func (c *caller) run() error {
	all := make([]outcome, c.times)
	if c.together {
		var open sync.WaitGroup
		for i := range all {
			open.Go(func() { all[i] = c.once() })
		}
		open.Wait()
	} else {
		for i := range all {
			all[i] = c.once()
		}
	}
	counts := map[string]int{}
	for _, o := range all {
		if !slices.Contains(c.results, o.result) {
			return fmt.Errorf("got %s from %q (%.300s) %v", o.result, o.answer.Seen.Backend, o.answer.Body, o.err)
		}
		counts[o.result]++
		counts["from "+o.answer.Seen.Backend]++
	}
	for _, r := range c.results {
		if counts[r] == 0 {
			return fmt.Errorf("none of %d got %s", c.times, r)
		}
	}
	for _, check := range c.checks {
		if err := c.check(check, all[0], counts); err != nil {
			return err
		}
	}
	return nil
}

// check makes one check.
func (c *caller) check(check string, first outcome, counts map[string]int) error {
	kind, rest, _ := strings.Cut(check, ":")
	name, pattern, _ := strings.Cut(rest, "~")
	seen := first.answer.Seen
	switch kind {
	case "saw":
		got := seen.Header.Get(name)
		switch name {
		case "host":
			got = seen.Host
		case "path":
			got = seen.Path
		}
		return matches("the backend saw "+name, got, pattern)
	case "got":
		return matches("the response has "+name, first.answer.Header.Get(name), pattern)
	case "mirror":
		for _, s := range c.w.backends[name].Last() {
			if s.Path == c.url.RequestURI() {
				return nil
			}
		}
		return fmt.Errorf("%s has seen no copy", name)
	case "after":
		if d, err := time.ParseDuration(rest); err != nil || first.took < d {
			return errors.Join(err, fmt.Errorf("it took %s", first.took))
		}
		return nil
	}
	if kind == "counted" {
		n, err := c.w.web.StatSum(rest)
		if err == nil && n == 0 {
			err = fmt.Errorf("the counters %s are 0", rest)
		}
		return err
	}
	backend, share, several := strings.Cut(check, "=")
	got := counts["from "+backend]
	if !several {
		if got != c.times {
			return fmt.Errorf("%s answered %d of %d: %v", backend, got, c.times, counts)
		}
		return nil
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(share, "%"))
	n, p := float64(c.times), float64(percent)/100
	if deviation := math.Sqrt(n * p * (1 - p)); math.Abs(float64(got)-n*p) > 5*deviation {
		err = errors.Join(err, fmt.Errorf("%s answered %d of %d: %v", backend, got, c.times, counts))
	}
	return err
}

func matches(what, got, pattern string) error {
	if ok, err := regexp.MatchString("^(?:"+pattern+")$", got); err != nil || !ok {
		return errors.Join(err, fmt.Errorf("%s: %q", what, got))
	}
	return nil
}

// once makes one request, on a connection of its own.
func (c *caller) once() outcome {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	start := time.Now()
	var o outcome
	if c.method == "TCP" {
		o.answer, o.err = c.exchange(ctx)
		o.result = "open"
	} else {
		o.answer, o.err = c.request(ctx)
		o.result = strconv.Itoa(o.answer.Status)
	}
	if o.err != nil {
		o.result = "closed"
	}
	o.took = time.Since(start)
	return o
}

// request sends an HTTP request.
func (c *caller) request(ctx context.Context) (harness.Answer, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: c.dial, DialTLSContext: c.dial}
	req, err := http.NewRequestWithContext(ctx, c.method, c.url.String(), nil)
	if err != nil {
		return harness.Answer{}, err
	}
	req.Host, req.Header = c.url.Hostname(), c.header
	resp, err := transport.RoundTrip(req) // redirects are not followed
	if err != nil {
		return harness.Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	a := harness.Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
	if json.Unmarshal(body, &a.Seen) != nil {
		a.Seen = harness.Seen{} // not from a backend
	}
	return a, err
}

// exchange reads the greeting of an echo, and sends it a line.
func (c *caller) exchange(ctx context.Context) (a harness.Answer, err error) {
	conn, err := c.dial(ctx, "tcp", "")
	if err != nil {
		return a, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return a, err
	}
	// policies decide at the first byte
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return a, err
	}
	in := bufio.NewReader(conn)
	greeting, err := in.ReadString('\n')
	if err != nil {
		return a, err
	}
	a.Seen.Backend = strings.TrimSpace(greeting)
	if line, err := in.ReadString('\n'); err != nil || line != "hello\n" {
		return a, errors.Join(err, fmt.Errorf("the echo is %q", line))
	}
	return a, nil
}

// dial connects as the caller, by TLS if the URL says so.
func (c *caller) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	from, source, _ := strings.Cut(c.from, "@")
	d := &net.Dialer{}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	port := c.url.Port()
	ip := map[string]string{"client": c.w.client.IP, "tunnel": c.w.client.IP, "outside": c.w.edge.IP,
		"legacy": c.w.web.IP, "other": c.w.web.IP}[from]
	if from == "tunnel" {
		port = "3128"
	}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip, port))
	if err != nil {
		return nil, err
	}
	if from == "tunnel" {
		if err := c.tunnel(conn); err != nil {
			_ = conn.Close() // the first error says it all
			return nil, err
		}
	}
	config, err := c.tlsConfig(from)
	if err != nil || config == nil {
		return conn, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the first error says it all
		return nil, err
	}
	return secure, nil
}

// tunnel asks an HTTP proxy to connect.
func (c *caller) tunnel(conn net.Conn) error {
	to := net.JoinHostPort(c.w.backendIP(c.header.Get("to")), c.url.Port())
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to); err != nil {
		return err
	}
	answer := make([]byte, len("HTTP/1.1 200 OK\r\n\r\n"))
	if _, err := io.ReadFull(conn, answer); err != nil || !strings.Contains(string(answer), " 200 ") {
		return errors.Join(err, fmt.Errorf("the proxy answers %q", answer))
	}
	return nil
}

// tlsConfig is nil for plaintext.
func (c *caller) tlsConfig(from string) (*tls.Config, error) {
	if from == "other" {
		config := &tls.Config{Certificates: []tls.Certificate{c.w.other.Certificate}, InsecureSkipVerify: true,
			NextProtos: []string{"istio"}} // the name of the server is a SPIFFE ID
		if c.tls == "1.2" {
			config.MaxVersion = tls.VersionTLS12
		}
		return config, nil
	}
	if c.url.Scheme != "https" && c.url.Scheme != "tls" {
		return nil, nil
	}
	config := &tls.Config{RootCAs: c.w.roots, ServerName: c.url.Hostname()}
	if c.cert != "" {
		pair, err := c.w.pair(c.cert)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
