package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs echo until the test ends and returns the addresses of HTTP and TCP.
func serve(t *testing.T, edit func(*config)) (http, tcp string, stop func() error) {
	t.Helper()
	c := &config{name: "web", version: "v7", grace: 10 * time.Second}
	if edit != nil {
		edit(c)
	}
	h, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.run(ctx, h, l); close(done) }()
	stop = func() error { cancel(); return <-done }
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return h.Addr().String(), l.Addr().String(), stop
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// The answer is what was asked.
func TestReply(t *testing.T) {
	t.Parallel()
	addr, _, _ := serve(t, nil)
	_, body := get(t, "http://"+addr+"/a/b?x=1")
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatal(err)
	}
	if a.Name != "web" || a.Version != "v7" || a.Path != "/a/b" || a.Query != "x=1" || a.Host != addr ||
		a.Address != addr || a.Request != 1 || a.Headers.Get("Accept-Encoding") == "" {
		t.Errorf("got %+v", a)
	}
}

// What a request asks for happens; what it asks wrongly is named.
func TestTrouble(t *testing.T) {
	t.Parallel()
	addr, _, _ := serve(t, nil)
	for _, tc := range []struct {
		query string
		code  int
		text  string
	}{
		{"status=418", 418, `"version": "v7"`},
		{"fail=1", 503, `"version": "v7"`},
		{"fail=0", 200, `"version": "v7"`},
		{"delay=1ms", 200, `"version": "v7"`},
		{"delay=soon", 400, `delay="soon": want a duration`},
		{"status=99", 400, `status="99": want a number`},
		{"fail=2", 400, `fail="2": want a share`},
	} {
		if code, body := get(t, "http://"+addr+"/?"+tc.query); code != tc.code || !strings.Contains(body, tc.text) {
			t.Errorf("%s: %d %q, want %d with %q", tc.query, code, body, tc.code, tc.text)
		}
	}
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("x-status", "429")
	w := httptest.NewRecorder()
	newEcho(&config{}).ServeHTTP(w, req)
	if w.Code != 429 {
		t.Errorf("by header: %d, want 429", w.Code)
	}
}

// Lines arrive one at a time, not at the end.
func TestStream(t *testing.T) {
	t.Parallel()
	addr, _, stop := serve(t, nil)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + addr + "/stream?chunks=2&every=50ms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || line != "web v7 1\n" {
		t.Fatalf("first line %q, %v", line, err)
	}
	// The end lets an open request finish.
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "web v7 2\n" {
		t.Errorf("rest %q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A call goes through the proxy and its answer comes back; many calls are counted by version.
func TestCall(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String() + " " + r.Header.Get("x-user")
		if strings.Contains(r.URL.Path, "down") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"version":"v1"}`)
	}))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	addr, _, _ := serve(t, func(c *config) { c.proxy = u })
	req, err := http.NewRequest(http.MethodGet, "http://"+addr+"/call?url=http://backend.internal:8080/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-user", "ann")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got, want := <-asked, "http://backend.internal:8080/x ann"; got != want || resp.StatusCode != 200 {
		t.Errorf("the proxy was asked %q (answer %d), want %q", got, resp.StatusCode, want)
	}
	for path, want := range map[string]tally{
		"x":    {Answers: map[string]int{"v1": 3}},
		"down": {Answers: map[string]int{}, Failures: map[string]int{"status 503": 3}},
	} {
		_, body := get(t, "http://"+addr+"/call?times=3&url=http://backend.internal:8080/"+path)
		var got tally
		if err := json.Unmarshal([]byte(body), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, %v; want %+v", path, got, err, want)
		}
	}
	if code, _ := get(t, "http://"+addr+"/call"); code != 400 {
		t.Errorf("without a URL: %d, want 400", code)
	}
}

// A connection is greeted and echoed, and ends with the program.
func TestTCP(t *testing.T) {
	t.Parallel()
	_, addr, stop := serve(t, nil)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "hello\n")
	r := bufio.NewReader(conn)
	for _, want := range []string{"web v7\n", "hello\n"} {
		if line, err := r.ReadString('\n'); err != nil || line != want {
			t.Fatalf("got %q, %v; want %q", line, err, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the connection outlived the program")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--proxy 127.0.0.1:1": "--proxy",
		"x":                   "unexpected argument",
		"--port 8":            "not defined",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
}
