package consul

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// histories is how many are tried. For a search for what is wrong, let it be many.
const histories = 100

// Whatever happens to Consul and to ashored: what was right of a service, and has not changed in Consul or is lost by it, stays as it was
// meanwhile; and when all is well again everything is as Consul has it, but for what is told to be lost, and nothing else is told.
func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := begin(t, seed)
				defer func() { h.f.end() }()
				for range 3 + h.r.IntN(25) {
					h.step()
					h.pass(pick(h, 0, 0, time.Millisecond, 3*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond, time.Second, 10*time.Second, time.Minute, 11*time.Minute))
				}
				h.mend()
				if t.Failed() {
					t.Logf("%s\nproblems: %v", strings.Join(h.log, "\n"), h.f.problems())
				}
			})
		})
	}
}

// history is what happens to a Consul of two datacenters, and to ashored, which follows it.
type history struct {
	t    *testing.T
	r    *rand.Rand
	w    *twin
	f    *following
	o    Options
	kept lastgood.Config[registry.Instances]
	log  []string

	hides, wipes bool // things that not every history has
	renamed      map[string]time.Time
	seen         map[hosted]*sight
}

// hosted is a service of a datacenter.
type hosted struct{ dc, name string }

func (h hosted) host() string {
	return strings.ReplaceAll(h.name+".service."+h.dc+".consul", "..", ".")
}

// sight is what was seen of a service.
type sight struct {
	version string    // of what Consul has
	since   time.Time // that
	right   bool      // it was as Consul had it
	lost    string    // what it was when Consul lost it, and has to stay until Consul has it again
}

// calm is how long ago anything has to have changed about a service for it to be expected to be right.
const calm = 3 * time.Second

var (
	twinDCs   = [...]string{"", "dc2"}
	twinNames = [...]string{"a", "b", "c", "d", "e"}
)

// begin begins a history.
func begin(t *testing.T, seed uint64) *history {
	h := &history{t: t, r: rand.New(rand.NewPCG(seed, 9)), w: newTwin(twinDCs[:]...), renamed: map[string]time.Time{}, seen: map[hosted]*sight{},
		kept: lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}}
	h.o = Options{Datacenters: []string{"dc1", "dc2"}, Connections: pick(h, 100, 12, 16)} // room for all, for some, for none
	h.hides, h.wipes = h.r.IntN(3) == 0, h.r.IntN(3) == 0
	h.says("%d connections", h.o.Connections)
	for _, dc := range twinDCs {
		for id := range 4 {
			h.register(dc, id, pick(h, twinNames[:]...))
		}
	}
	h.f = lookOver(t, h.w, h.o, h.kept)
	h.pass(30 * time.Second)
	return h
}

func pick[T any](h *history, of ...T) T { return of[h.r.IntN(len(of))] }

func (h *history) says(format string, args ...any) {
	h.log = append(h.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) register(dc string, id int, name string) {
	d, key := h.w.dcs[dc], fmt.Sprint(dc, id)
	h.w.change(func() {
		if i := d.instances[id]; i != nil && i.service != name {
			h.renamed[key] = time.Now()
		}
		d.register(id, name, 1+id*40+h.r.IntN(39))
	})
	h.says("%s i%d is one of %s, at %d", dc, id, name, d.instances[id].address)
}

// step has something happen.
func (h *history) step() {
	dc, id, name := pick(h, twinDCs[:]...), h.r.IntN(6), pick(h, twinNames[:]...)
	d := h.w.dcs[dc]
	i := d.instances[id]
	switch n := h.r.IntN(13); {
	case n < 3:
		h.register(dc, id, name)
	case n < 5 && i != nil && time.Since(h.renamed[fmt.Sprint(dc, id)]) > 2*time.Minute: // else see the limits in docs/consul.md
		h.says("%s i%d is gone from %s", dc, id, i.service)
		h.w.change(func() { d.deregister(id) })
	case n >= 5 && n < 8 && i != nil:
		status := pick(h, api.HealthCritical, api.HealthPassing)
		h.says("%s i%d is %s", dc, id, status)
		h.w.change(func() { d.check(id, status) })
	case n == 8:
		critical := pick(h, true, false)
		h.says("%s %s is down: %v", dc, twinNode(id), critical)
		h.w.change(func() { d.checkNode(twinNode(id), critical) })
	case n == 9 || n == 10:
		h.fail(dc, name)
	case n == 11 && h.hides && pick(h, true, false):
		hidden := !h.w.hidden[dc+"/"+name]
		h.says("%s/%s is hidden: %v", dc, name, hidden)
		h.w.change(func() { h.w.hidden[dc+"/"+name] = hidden })
	case n == 11 && h.wipes && pick(h, true, false):
		h.wipe(dc)
	case n == 11:
		h.says("all connections end")
		h.w.change(func() { h.w.cuts++ })
	case n == 12 && pick(h, true, false):
		h.says("ashored is started again")
		h.f.end()
		h.f = lookOver(h.t, h.w, h.o, h.kept)
		for _, s := range h.seen {
			s.lost = "" // where others are there, nobody knows that it was not deregistered meanwhile
		}
	case n == 12 && i != nil:
		h.register(dc, id, name)
		h.pass(pick(h, 0, time.Millisecond, 2*time.Millisecond, 10*time.Millisecond))
		h.register(dc, id, i.service)
	}
}

// wipe has the server of a datacenter start anew, with an empty data folder.
func (h *history) wipe(dc string) {
	h.says("nothing fails, so that ashored has heard of %s since its last start", dc)
	h.w.change(func() { h.w.fails = nil })
	h.pass(time.Minute)
	h.says("%s stops", dc)
	h.w.change(func() { h.w.stopped[dc] = true; h.w.cuts++ })
	h.pass(time.Second)
	h.says("%s is there again, and empty", dc)
	for at, s := range h.seen {
		if is := h.w.is(dc, at.name); at.dc == dc && s.right && is != "" {
			s.lost = is
		}
	}
	h.w.change(func() {
		h.w.dcs[dc] = newTwinDC(uint64(3 + h.r.IntN(30)))
		delete(h.w.stopped, dc)
	})
}

// fail has some questions answered with errors from now on.
func (h *history) fail(dc, name string) {
	n := h.r.IntN(9)
	fails := []func(in, path string) bool{nil, nil, nil,
		func(_, _ string) bool { return true },
		func(in, _ string) bool { return in == dc },
		func(in, path string) bool { return in == dc && ofNames(in, path) },
		func(in, path string) bool { return in == dc && path == "/v1/health/service/"+name },
		func(in, path string) bool { return in == dc && strings.HasPrefix(path, "/v1/health/state") },
		func(in, path string) bool { return ofService(in, path) && !strings.HasSuffix(path, "/consul") },
	}[n]
	cut := h.r.IntN(3) == 0
	h.says("what fails is %d of %s/%s, cut %v", n, dc, name, cut)
	h.w.change(func() {
		if h.w.fails = fails; cut {
			h.w.cuts++
		}
	})
}

// pass has time pass, and looks whether what was right stays so.
func (h *history) pass(d time.Duration) {
	h.look()
	h.says("%v pass", d)
	for end := time.Now().Add(d); time.Now().Before(end); h.look() {
		time.Sleep(min(time.Until(end), max(2*time.Millisecond, d/50)))
	}
}

func (h *history) look() {
	synctest.Wait()
	h.f.mu.Lock()
	begun := len(h.f.merged.Waiting()) == 0
	h.f.mu.Unlock()
	for _, dc := range twinDCs {
		for _, name := range twinNames {
			at := hosted{dc, name}
			if h.seen[at] == nil {
				h.seen[at] = &sight{}
			}
			h.see(at, h.seen[at], begun)
		}
	}
}

// see looks at one service.
func (h *history) see(at hosted, s *sight, begun bool) {
	want, got := h.w.is(at.dc, at.name), h.f.all(at.host())
	if version := h.w.version(at.dc, at.name); s.version != version {
		s.version, s.since, s.right = version, time.Now(), false
	}
	if s.right && got != want && begun {
		h.says("it is wrong")
		h.t.Errorf("%s was right, and is %q, want %q", at.host(), got, want)
		s.right = false
	}
	if want != "" {
		s.lost = ""
	}
	if s.lost != "" && got != s.lost && begun {
		h.says("it is wrong")
		h.t.Errorf("%s was lost by Consul, and is %q, want %q", at.host(), got, s.lost)
		s.lost = ""
	}
	s.right = s.right || got == want && want != "" && time.Since(s.since) > calm
}

// mend has all be well again, and looks at what comes of that.
func (h *history) mend() {
	h.says("all is well")
	h.w.change(func() { h.w.fails = nil; clear(h.w.hidden) })
	h.pass(map[bool]time.Duration{true: longWait + time.Minute, false: time.Minute}[h.hides])
	const lost = "came back without"
	for at := range h.seen {
		want, got := h.w.is(at.dc, at.name), h.f.all(at.host())
		if got != want && (want != "" || h.f.tells(lost) == 0) {
			h.t.Errorf("in the end %s is %q, want %q", at.host(), got, want)
		}
	}
	for _, p := range h.f.problems() {
		if !strings.Contains(p.Text, "are asked by turns") && !strings.Contains(p.Text, lost) {
			h.t.Errorf("in the end there is %v", p)
		}
	}
}
