package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/task"
)

const (
	// startWithin bounds the time until traffic flows.
	startWithin = time.Minute
	// reviveAfter is how long ashored stays away when it was killed: time to see that traffic
	// continues.
	reviveAfter = 5 * time.Second
)

// mesh is one run.
type mesh struct {
	o      options
	out    io.Writer
	client *http.Client
	// try replaces the invitation to try the mesh, in tests. When it returns, the run ends.
	try func(ctx context.Context) error
}

func newMesh(o options, out io.Writer) *mesh {
	return &mesh{o: o, out: out, client: &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}}
}

// say prints a line.
func (m *mesh) say(format string, args ...any) { fmt.Fprintf(m.out, format+"\n", args...) }

// errDone ends everything when try has returned.
var errDone = errors.New("done")

// Run starts everything and returns when it has ended. The error is what went wrong; the end of ctx
// is none.
func (m *mesh) Run(ctx context.Context) (err error) {
	began := time.Now()
	lock, err := m.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock(lock)) }()
	if err := m.checkPorts(ctx); err != nil {
		return err
	}
	if err := m.prepare(); err != nil {
		return err
	}
	var parts []task.Part
	for _, p := range m.programs() {
		parts = append(parts, task.Part{Name: p.name, Run: p.run})
	}
	parts = append(parts, task.Part{Name: "quickstart",
		Run: func(ctx context.Context) error { return ended(ctx, m.guide(ctx, began)) }})
	switch err := task.Run(ctx, parts...); {
	case errors.Is(err, errDone), err == nil && m.try == nil:
		return m.clean()
	case err == nil:
		return errors.New("ended before the test was over")
	default:
		return fmt.Errorf("%w\nlogs are in %s", err, filepath.Join(m.o.dir, "logs"))
	}
}

// ended is err, which is none when it comes of the end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, errDone) {
		return nil
	}
	return err
}

// clean removes what a run that went well has left behind.
func (m *mesh) clean() error {
	entries, err := os.ReadDir(m.o.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(m.o.dir, e.Name())))
	}
	return errors.Join(err, os.Remove(m.o.dir))
}

// guide waits until traffic flows, and then prints what to try.
func (m *mesh) guide(ctx context.Context, began time.Time) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	m.say("Traffic flows, %.1f s after the start.\n", time.Since(began).Seconds())
	if err := m.describe(ctx); err != nil {
		return err
	}
	if m.try == nil {
		m.invite()
		<-ctx.Done()
		m.say("\nending")
		return nil
	}
	if err := m.try(ctx); err != nil {
		return err
	}
	return errDone
}

// wait returns when every part is ready and both versions of the backend have answered the
// frontend.
func (m *mesh) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	type ask struct{ what, url string }
	asks := []ask{{"ashored", m.ready()}}
	for _, w := range workloads() {
		asks = append(asks, ask{w.name, "http://" + m.at(w, portStatus) + "/healthz/ready"})
	}
	for _, a := range asks {
		if err := until(ctx, func() error { _, err := m.get(ctx, a.url); return err }); err != nil {
			return fmt.Errorf("%s is not ready within %v: %w", a.what, startWithin, err)
		}
	}
	return until(ctx, func() error {
		s, err := m.measure(ctx, 20)
		if err == nil && (len(s.Failures) > 0 || len(s.Answers) != 2) {
			err = fmt.Errorf("traffic does not flow within %v: %v", startWithin, s)
		}
		return err
	})
}

// ready is where ashored says that it serves proxies.
func (m *mesh) ready() string { return "http://" + m.o.metrics + "/ready" }

// until asks again until ok is nil; the error is the last one.
func until(ctx context.Context, ok func() error) error {
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if !task.Sleep(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// get returns the body of a page; a status other than 200 is an error.
func (m *mesh) get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %d: %s", url, resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}
