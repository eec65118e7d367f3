package httpserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server whose requests wait until they are released.
type running struct {
	t                *testing.T
	url              string
	entered, release chan struct{}
	ending           chan struct{} // closed when it begins to end
	end              context.CancelFunc
	done             chan error
	client           *http.Client
}

func run(t *testing.T, drain time.Duration, secure bool) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.47.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, url: "http://" + l.Addr().String(), entered: make(chan struct{}), release: make(chan struct{}),
		ending: make(chan struct{}), end: cancel, done: make(chan error, 1), client: &http.Client{}}
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		r.entered <- struct{}{}
		<-r.release
	})}
	if secure { // borrow a certificate, and a client that believes it
		lent := httptest.NewTLSServer(nil)
		srv.TLSConfig, r.client, r.url = lent.TLS.Clone(), lent.Client(), "https://"+l.Addr().String()
		r.client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com" // which it has
		lent.Close()
	}
	srv.RegisterOnShutdown(func() { close(r.ending) })
	go func() { r.done <- Run(ctx, srv, l, drain) }()
	t.Cleanup(func() { cancel(); r.client.CloseIdleConnections() })
	return r
}

// ask asks, and returns how it was answered once somebody works on it.
func (r *running) ask() <-chan error {
	out := make(chan error, 1)
	go func() {
		resp, err := r.client.Get(r.url)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			err = errors.Join(err, resp.Body.Close())
		}
		out <- err
	}()
	select {
	case <-r.entered:
	case err := <-out:
		r.t.Fatalf("asked in vain: %v", err)
	}
	return out
}

// An active request finishes, also with TLS, and no new one is accepted.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, time.Minute, secure)
			answer := r.ask()
			r.end()
			<-r.ending
			select {
			case err := <-r.done:
				t.Fatalf("it ended with a request under way: %v", err)
			default:
			}
			close(r.release)
			if err := <-answer; err != nil {
				t.Errorf("the request under way: %v", err)
			}
			if err := <-r.done; err != nil {
				t.Errorf("it ended with %v", err)
			}
			if resp, err := r.client.Get(r.url); err == nil {
				t.Errorf("somebody came in afterwards: %v", errors.Join(errors.New(resp.Status), resp.Body.Close()))
			}
		})
	}
}

// A request that takes too long is ended, and Run returns no error.
func TestRunCutsOff(t *testing.T) {
	t.Parallel()
	r := run(t, time.Millisecond, false)
	answer := r.ask()
	r.end()
	if err := <-answer; err == nil {
		t.Error("the request was answered")
	}
	if err := <-r.done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	close(r.release)
}

// A listener that fails is an error that names it.
func TestRunFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.47.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), &http.Server{}, l, time.Second)
	if want := "serve " + l.Addr().String() + ": "; err == nil || !errors.Is(err, net.ErrClosed) ||
		err.Error()[:len(want)] != want {
		t.Errorf("got %v", err)
	}
}
