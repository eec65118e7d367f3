package consul

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Services that the token cannot read any more stay. Those that are deregistered meanwhile are
// removed.
func TestHidden(t *testing.T) {
	t.Parallel()
	const group = "/agent's datacenter"
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1")
		r := receive(t, f, Options{}, true)
		defer r.stop()
		d := f.dcs["dc1"]
		time.Sleep(time.Minute)
		before := r.host(web)
		f.change(func() { f.hidden["dc1/web"], f.hidden["dc1/db"] = true, true; f.cuts++ })
		time.Sleep(time.Minute)
		if got := r.host(web); got != before || before == "" {
			t.Errorf("web is %q, want %q", got, before)
		}
		if got := r.problems(group); !strings.Contains(got, "cannot read 2 of 2 services any more") {
			t.Errorf("the problem is %q", got)
		}
		f.change(func() { d.deregister(3) })
		time.Sleep(time.Minute)
		if got := r.host("db.service.consul"); got != "" {
			t.Errorf("db was deregistered and is %q", got)
		}
		if got := r.problems(group); !strings.Contains(got, "cannot read 1 of 1 services any more") {
			t.Errorf("the problem is %q", got)
		}
		f.change(func() { delete(f.hidden, "dc1/web"); d.register(4, "web") })
		time.Sleep(time.Minute)
		r.is(d, "web", web)
		if got := r.problems(group); strings.Contains(got, "any more") {
			t.Errorf("the problem stays: %q", got)
		}
	})
}

// With a token for some services, those are supplied. A warning reports that there are others,
// unless the settings name the ones to read.
func TestPartialToken(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		o    Options
		want string
	}{
		"all":                  {Options{}, "cannot read all services"},
		"named":                {Options{Services: []string{"web"}}, ""},
		"named, one is hidden": {Options{Services: []string{"web", "db"}}, "cannot read all services"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := withWeb("dc1")
				f.hidden["dc1/db"] = true
				r := receive(t, f, tc.o, true)
				defer r.stop()
				time.Sleep(time.Minute)
				r.is(f.dcs["dc1"], "web", web)
				got := r.problems("/agent's datacenter")
				if r.full() != 1 || (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
					t.Errorf("%d Full batches; the problem is %q, want %q", r.full(), got, tc.want)
				}
				f.change(func() { clear(f.hidden); f.dcs["dc1"].register(9, "new") }) // another token
				time.Sleep(time.Minute)
				if got := r.problems("/agent's datacenter"); got != "" {
					t.Errorf("the problem stays: %q", got)
				}
			})
		})
	}
}
