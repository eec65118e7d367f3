package consul

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// Settings that choose none of the services that there are, are told to do so: no Consul has lost anything then.
func TestNoneChosen(t *testing.T) {
	t.Parallel()
	const choose = "the settings choose none of the 2 services of Consul at http://consul.test:8500 "
	tests := map[string]struct {
		o      Options
		why    string
		stay   bool // what was kept stays
		chosen bool // what there is counts by these in the end
	}{
		"metadata":             {Options{Metadata: map[string]string{"b": "y", "a": "x"}}, "(metadata: {a: x, b: y})", true, true},
		"metadata, tags":       {Options{NodeMetadata: map[string]string{"a": "x"}, Tags: []string{"v1"}}, "(tags: [v1], nodeMetadata: {a: x})", true, true},
		"metadata, as is said": {Options{Metadata: map[string]string{"a": "x"}, Emptied: "believe"}, "(metadata: {a: x})", false, true},
		"names":                {Options{Services: []string{"WEB"}}, "(services: [WEB])", false, false},
		"names and metadata":   {Options{Services: []string{"WEB"}, Except: []string{"x"}, Metadata: map[string]string{"a": "x"}}, "(services: [WEB], except: [x])", false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answers := &over{c: newCatalogs("consul", "web", "pay")}
				cfg := lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
				f := lookOver(t, answers, Options{}, cfg)
				time.Sleep(time.Minute)
				f.is("all of them", "", 0, time.Time{})
				f.end()

				if tc.chosen {
					answers.set(func(r *http.Request) *http.Response {
						if q := r.URL.Query(); r.URL.Path == "/v1/catalog/services" && strings.Contains(q.Get("filter"), "Service") && q.Get("index") == "" {
							return resp(r, 200, 10, false, `{}`)
						}
						return nil
					})
				}
				f = lookOver(t, answers, tc.o, cfg)
				time.Sleep(time.Minute)
				if here := f.state("web.service.consul") == "healthy"; here != tc.stay {
					t.Errorf("web is there: %v", here)
				}
				text := map[bool]string{true: ": those that counted before stay as they were: pay, web; mend that", false: ": none is part of the mesh"}[tc.stay]
				if f.tells(choose+tc.why+text) != 1 || f.tells("came back without") != 0 || len(f.problems()) != 1 {
					t.Errorf("problems: %v", f.problems())
				}
				f.end()

				f = lookOver(t, answers, tc.o, lastgood.Config[registry.Instances]{}) // nothing is kept
				time.Sleep(time.Minute)
				if f.tells(choose+tc.why+": none is part of the mesh") != 1 || len(f.problems()) != 1 || !f.stands().Synced {
					t.Errorf("with nothing kept: %v", f.problems())
				}
				answers.set(nil)
				answers.c.change(func() { answers.c.services["WEB"] = "passing" })
				time.Sleep(time.Minute)
				if f.tells(choose) != 0 {
					t.Errorf("now they choose some: %v", f.problems())
				}
				f.end()
			})
		})
	}
}

// A Consul that has nothing at all has nothing that could be chosen.
func TestNothingToChoose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCatalogs("consul").look(t, Options{Metadata: map[string]string{"a": "x"}, Services: []string{"web"}}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		if f.is("empty", "", 0, time.Time{}); len(f.problems()) != 0 || !f.stands().Synced {
			t.Error(f.problems())
		}
	})
}

// A filter that Consul does not understand is one trouble, of the source, however many services there are.
func TestMisfilter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := &over{c: newCatalogs("web", "pay", "cart")}
		cfg := lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		f := lookOver(t, answers, Options{}, cfg)
		time.Sleep(time.Minute)
		f.end()
		answers.set(func(r *http.Request) *http.Response {
			if strings.HasPrefix(r.URL.Path, "/v1/health/service/") && r.URL.Query().Get("filter") != "" {
				return resp(r, 400, 10, false, "Failed to create boolean expression evaluator: 1:9 no match found")
			}
			return nil
		})
		f = lookOver(t, answers, Options{Filter: "Service.=="}, cfg)
		time.Sleep(time.Minute)
		const why = `does not understand the filter "Service.==" (400, Failed to create boolean expression evaluator: 1:9 no match found): mend filter`
		if s := f.stands(); !strings.HasSuffix(s.Error, why) || !s.Synced || f.tells(why) != 1 || len(f.problems()) != 1 || f.state("web.service.consul") != "healthy" {
			t.Errorf("it stands with %+v: %v", s, f.problems())
		}
		answers.set(nil) // another Consul does
		time.Sleep(time.Minute)
		if f.is("understood", "", 0, time.Time{}); len(f.problems()) != 0 {
			t.Error(f.problems())
		}
		f.end()
	})
}
