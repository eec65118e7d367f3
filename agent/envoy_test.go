package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
)

// The program that is named wins, then PATH; units run the packaged one. Else the error says what
// to do.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	place := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const version = "echo 'envoy  version: 0/1.40.0/Clean/RELEASE/BoringSSL'\n"
	named, inPath, other := place("own/e", version), place("path/envoy", version), place("own/other", "echo 1\n")
	t.Chdir(dir)
	find := func(e Envoy, want, wantErr string) {
		t.Helper()
		got, err := e.Program(t.Context())
		if got != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%+v: %q, %v; want %q, %q", e, got, err, want, wantErr)
		}
	}
	t.Setenv("PATH", filepath.Dir(inPath))
	find(Envoy{Path: named}, named, "")
	find(Envoy{Path: "own/e"}, named, "")
	find(Envoy{}, inPath, "")
	find(Envoy{units: true, program: named}, named, "")
	find(Envoy{Path: other}, "", "is not Envoy")
	find(Envoy{Path: "own/none"}, "", "envoy.path: envoy is missing: there is no "+filepath.Join(dir, "own/none"))
	t.Setenv("PATH", "")
	find(Envoy{}, "", "install the package ashore-envoy, or name Envoy's program")
}

// Envoy that ends is started again after a growing pause, which starts again after a run that was
// steady. An end that nobody asked for is reported at once.
func TestRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lives := []time.Duration{0, 0, 0, 0, time.Second, 2 * time.Minute, 0}
		var starts []time.Duration // since the start of the test
		begin := time.Now()
		last, end := context.WithCancel(t.Context())
		r := newRestarter(hclog.NewNullLogger())
		r.repeat(t.Context(), last, func(context.Context) error {
			starts = append(starts, time.Since(begin))
			n := len(starts) - 1
			if n == len(lives) {
				end()
				return errors.New("asked to")
			}
			if n > 0 {
				<-r.Ended()
			}
			time.Sleep(lives[n])
			return errors.New("exit status 1")
		})
		ms := time.Millisecond
		want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 4100 * ms, 124200 * ms, 124400 * ms}
		if d := cmp.Diff(want, starts); d != "" {
			t.Errorf("starts (-want +got):\n%s", d)
		}
		if got := r.State().Trouble; got != "exit status 1" {
			t.Errorf("trouble %q", got)
		}
	})
}

// The pause never grows beyond its bound, and the end does not wait for it.
func TestRestartPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRestarter(hclog.NewNullLogger())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		begin, runs := time.Now(), 0
		r.repeat(ctx, t.Context(), func(context.Context) error { runs++; return errors.New("exit status 1") })
		if took := time.Since(begin); took != time.Hour+time.Second {
			t.Errorf("ended after %v", took)
		}
		if least := int(time.Hour / longestPause); runs < least {
			t.Errorf("%d runs in an hour, want at least %d", runs, least)
		}
	})
}

// The drain waits for open connections, and never longer than its maximum.
func TestWaitClosed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		max    time.Duration
		idleAt time.Duration // when the last connection goes; -1: never
		endsAt time.Duration // when Envoy ends; 0: never
		want   time.Duration
		left   uint64
	}{
		{"idle", 5 * time.Second, 0, 0, 0, 0},
		{"busy for a while", 5 * time.Second, 2500 * time.Millisecond, 0, 2600 * time.Millisecond, 0},
		{"always busy", 5 * time.Second, -1, 0, 5 * time.Second, 3},
		{"no time at all", 0, -1, 0, 0, 3},
		{"Envoy ends", 5 * time.Second, -1, 1500 * time.Millisecond, 1600 * time.Millisecond, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				left := waitClosed(t.Context(), tc.max, func(context.Context) (uint64, error) {
					now := time.Since(begin)
					switch {
					case tc.endsAt > 0 && now >= tc.endsAt:
						return 0, errors.New("gone")
					case tc.idleAt < 0 || now < tc.idleAt:
						return 3, nil
					}
					return 0, nil
				})
				if took := time.Since(begin); took != tc.want || left != tc.left {
					t.Errorf("took %v with %d left, want %v and %d", took, left, tc.want, tc.left)
				}
			})
		})
	}
}
