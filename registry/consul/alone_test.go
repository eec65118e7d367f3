package consul

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// What no question can be asked for is known by its name, and what can is asked for.
func TestAskable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"web": true, "my_web": true, "a.b": true, "sl/ash?x=1&y#z": true, "ünï": true, "...": true, "a/": true, "%2e%2e": true, "..a": true,
		".": false, "..": false, "a/../b": false, "a/.": false, "../../agent/self": false, "/a": false, "a//b": false, "/": false, "a//": false,
		strings.Repeat("a", 1024): true, strings.Repeat("a", 1025): false,
	} {
		if got := askable(name); got != want {
			t.Errorf("%.40q: %v, want %v", name, got, want)
		}
	}
}

// A service whose name is the path of something else is told of, and keeps nothing from being served, at a start and later.
func TestUnaskableNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cfg := newCatalogs("web", "..", "."), lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		c.fails = func(_, path string) bool { return strings.Contains(path, "/.") }
		for range 2 {
			f := c.look(t, Options{}, cfg)
			time.Sleep(time.Second)
			f.is("at the start", "", 0, time.Time{})
			if !f.stands().Synced || f.state("web.service.consul") != "healthy" || f.tells("is no name of DNS") != 2 || len(f.problems()) != 2 {
				t.Errorf("%+v, %v", f.stands(), f.problems())
			}
			c.change(func() { c.services["../x"] = api.HealthPassing; delete(c.services, "..") })
			time.Sleep(time.Minute)
			if f.is("later", "", 0, time.Time{}); len(f.problems()) != 1 { // the catalogs name nothing with a slash
				t.Error(f.problems())
			}
			c.change(func() { c.services[".."] = api.HealthPassing })
			time.Sleep(time.Minute)
			f.end()
		}
	})
}

// A service for which Consul answers nothing but errors, while it tells of others, keeps those from being served for a bounded time
// alone. One of a Consul that is in trouble itself is waited for.
func TestAloneInTrouble(t *testing.T) {
	t.Parallel()
	const names = "/v1/catalog/services"
	tests := map[string]struct {
		o     Options
		fails func(path string, asked *atomic.Int32) bool
		comes bool
	}{
		"one of three": {fails: func(path string, _ *atomic.Int32) bool { return strings.HasSuffix(path, "/pay") }, comes: true},
		"one of two": {
			o:     Options{Except: []string{"cart"}},
			fails: func(path string, _ *atomic.Int32) bool { return strings.HasSuffix(path, "/pay") }, comes: true,
		},
		"two of three": {fails: func(path string, _ *atomic.Int32) bool {
			return strings.HasSuffix(path, "/pay") || strings.HasSuffix(path, "/cart")
		}},
		"the only one": {
			o:     Options{Services: []string{"pay"}},
			fails: func(path string, _ *atomic.Int32) bool { return strings.HasSuffix(path, "/pay") },
		},
		// A wait that was there before ends only when it is interrupted.
		"and nobody says which there are": {fails: func(path string, asked *atomic.Int32) bool {
			return strings.HasSuffix(path, "/pay") || path == names && asked.Add(1) > 1
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web", "pay", "cart")
				var asked atomic.Int32
				c.fails = func(_, path string) bool { return tc.fails(path, &asked) }
				f := c.look(t, tc.o, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(alonePatience - time.Second)
				if s := f.stands(); s.Synced || !strings.Contains(s.Error, "answers 500") {
					t.Errorf("it is not waited for: %+v", s)
				}
				time.Sleep(2 * time.Minute)
				if s := f.stands(); s.Synced != tc.comes {
					t.Fatalf("%+v", s)
				}
				if tc.comes && (f.state("web.service.consul") != "healthy" || f.tells("Consul service pay: Consul at http://consul.test:8500 answers 500") != 1) {
					t.Error(f.problems())
				}
				c.change(func() { c.fails = nil })
				time.Sleep(time.Minute)
				if f.is("mended", "", 0, time.Time{}); f.state("pay.service.consul") != "healthy" || len(f.problems()) != 0 {
					t.Error(f.problems())
				}
			})
		})
	}
}

// Only what Consul answers to a question says something of what is asked for.
func TestAnswered(t *testing.T) {
	t.Parallel()
	status := func(code int) error { return api.StatusError{Code: code} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{status(500), true},
		{fmt.Errorf("x: %w", status(403)), true},
		{status(http.StatusTooManyRequests), false},
		{errNoInstance, true},
		{errors.New("invalid character"), true},
		{errLost, false},
		{&url.Error{Op: "Get", Err: errors.New("tokenFile")}, false},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, false},
		{io.ErrUnexpectedEOF, false},
	} {
		if got := answered(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
