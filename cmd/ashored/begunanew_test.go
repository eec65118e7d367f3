package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
)

// logbook is a store with a history.
type logbook struct {
	mu     sync.Mutex
	latest string
	err    error
}

// says has it answer otherwise from now on.
func (l *logbook) says(latest string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest, l.err = latest, err
}

func (*logbook) Name() string { return "store:here" }

func (l *logbook) History(context.Context, config.Query) (config.Past, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return config.Past{Latest: l.latest}, l.err
}

// Readers are not told of a store that was begun anew beside an authority that is older: it may be another one, by a slip, and they
// would lose what they have. They are as soon as something is written to it, or it is no source, or was not begun anew.
func TestReadersOfAStoreBegunAnew(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(b *begunAnew, l *logbook)
		told   bool // at once
	}{
		"begun anew":     {func(*begunAnew, *logbook) {}, false},
		"not begun anew": {func(b *begunAnew, _ *logbook) { b.lost = func() bool { return false } }, true},
		"written to":     {func(_ *begunAnew, l *logbook) { l.says("1", nil) }, true},
		"unreadable":     {func(_ *begunAnew, l *logbook) { l.says("1", errors.New("away")) }, false},
		"no source": {func(b *begunAnew, _ *logbook) {
			b.sources = func() []feed.SourceStatus { return []feed.SourceStatus{{Name: "file:/x"}} }
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &logbook{latest: "0"}
				b := &begunAnew{lost: func() bool { return true }, store: l, sources: func() []feed.SourceStatus {
					return []feed.SourceStatus{{Name: "file:/x"}, {Name: l.Name()}}
				}}
				tc.change(b, l)
				s := defaults()
				s.MCP.Readers = []string{"rootNamespace"}
				if err := s.check("test.yaml"); err != nil {
					t.Fatal(err)
				}
				in, err := newInformants(s, nil, testlog.New(t))
				if err != nil {
					t.Fatal(err)
				}
				in.doubt = b.doubted
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- in.await(ctx) }()
				want := func(told bool) {
					t.Helper()
					time.Sleep(time.Minute)
					synctest.Wait()
					if got := in.catalog.Ready(); got != told {
						t.Errorf("readers are answered: %v, want %v", got, told)
					}
				}
				if want(false); len(in.unanswered("store:here")) != 0 {
					t.Error("it is told of readers before there is anything to tell them")
				}
				in.publish(push.Told{})
				want(tc.told)
				if told := in.unanswered("store:here"); tc.told && len(told) != 0 || !tc.told && (len(told) != 1 || !strings.Contains(told[0].Text, "begun anew beside an authority that is older")) {
					t.Errorf("told are %v", told)
				}
				l.says("1", nil)
				want(true)
				if err := <-done; err != nil || len(in.unanswered("store:here")) != 0 {
					t.Errorf("it waits still: %v, %v", err, in.unanswered("store:here"))
				}
				l.says("0", nil)
				in.publish(push.Told{Objects: push.Objects{}.With(config.Key{Name: "x"}, &config.Object{})})
				if got := in.own(); got.Len() != 1 || !in.catalog.Ready() {
					t.Error("what was believed is not any more")
				}
			})
		})
	}
}

// A store that is lost beside the authority has readers not be answered, and it is told, until something is written.
func TestStoreLostBesideReaders(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	file := filepath.Join(s.dir, "ashored.yaml")
	text := fmt.Sprintf("sources:\n- {kind: files, folder: %s}\n- {kind: store}\nmcp: {readers: [rootNamespace]}\n", filepath.Join(s.dir, "files"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.argv = []string{"--dev", "--config", file, "--state", filepath.Join(s.dir, "state"), "--xds-address", s.xds, "--xds-tls-address", s.secure, "--metrics-address", s.metrics}
	cmd, wait := s.child(t)
	if s.problem(t, "who reads the configuration over MCP is not answered") {
		t.Error("a new store is in doubt")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait()
	for _, name := range []string{"ashore.db", "ashore.db.open"} {
		if err := os.Remove(filepath.Join(s.dir, "state", name)); err != nil {
			t.Fatal(err)
		}
	}
	s.start(t)
	s.until(t, "it is told", func() bool { return s.problem(t, "who reads the configuration over MCP is not answered") })
	if err := s.apply(t, "web"); err != nil {
		t.Fatal(err)
	}
	s.until(t, "it is over", func() bool { return !s.problem(t, "who reads the configuration over MCP is not answered") })
}
