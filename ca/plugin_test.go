package ca

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// plug is a house whose authority is a set in a folder.
func plug(t *testing.T) (*house, *set, *Manager) {
	t.Helper()
	h, s := newHouse(t), newSet(t)
	h.config.Plugged = s.write(t, filepath.Join(t.TempDir(), "plugged"))
	return h, s, h.move()
}

// again is a set with another authority below the same root.
func (s *set) again(t *testing.T) *set {
	t.Helper()
	n := &set{root: s.root, above: s.above}
	n.cert = made(t, s.above, testKey(t, ECDSAP256), nil)
	n.pack(t)
	return n
}

// A set whose files are replaced one after the other is taken when the last one is there, and never
// half of it.
func TestSwapFileByFile(t *testing.T) {
	t.Parallel()
	h, s, m := plug(t)
	changed := m.Changed(t.Context())
	was := m.Signer()
	if s := show(t, m); s.Source != "plugged-in" || s.Roots[0].Role != "signs" || !s.Signer.Renew.IsZero() ||
		len(s.Problems) > 0 {
		t.Errorf("shown: %+v", s)
	}
	fresh := newSet(t) // another root: no file of it fits one of the old
	for i, name := range []string{pluggedKey, pluggedChain, pluggedCert, pluggedRoots} {
		replaceFile(t, filepath.Join(h.config.Plugged, name), fresh.files[name])
		h.later(m, time.Second)
		if i < 3 && m.Signer() != was {
			t.Fatalf("half a set signs: %s was replaced last", name)
		}
	}
	if !m.Signer().Cert.Equal(fresh.cert.Cert) || !m.Bundle().Roots[0].Equal(fresh.root.Cert) {
		t.Fatal("the set that is whole does not sign")
	}
	<-changed
	if err := believes(t, m.Signer(), noon, fresh.root.Cert); err != nil {
		t.Error(err)
	}
	if err := joins(t, m, RootID(fresh.root.Cert), "localhost", noon); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"ashored", "ashored"}, h.audited("ca.load")); d != "" {
		t.Errorf("audited (-want +got):\n%s", d)
	}
	_ = s
}

// A folder that is a link, or whose files are links into one, as Kubernetes and certbot have it, is
// taken when the link is swapped.
func TestSwapLink(t *testing.T) {
	t.Parallel()
	h, s, base := newHouse(t), newSet(t), t.TempDir()
	s.write(t, filepath.Join(base, "1"))
	point := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(base, "tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(base, "tmp"), filepath.Join(base, "data")); err != nil {
			t.Fatal(err)
		}
	}
	point("1")
	h.config.Plugged = filepath.Join(base, "mount")
	if err := os.Mkdir(h.config.Plugged, 0o700); err != nil {
		t.Fatal(err)
	}
	for name := range s.files {
		if err := os.Symlink(filepath.Join(base, "data", name), filepath.Join(h.config.Plugged, name)); err != nil {
			t.Fatal(err)
		}
	}
	m := h.move()
	bundle := m.Bundle()
	next := s.again(t)
	next.write(t, filepath.Join(base, "2"))
	point("2")
	h.later(m, time.Second)
	if !m.Signer().Cert.Equal(next.cert.Cert) {
		t.Error("the new set does not sign")
	}
	if m.Bundle() != bundle {
		t.Error("an equal bundle has another pointer")
	}
}

// A bad set is refused once, with the reason, and the one before stays; a good one after it is
// taken.
func TestSwapRefused(t *testing.T) {
	t.Parallel()
	h, s, m := plug(t)
	was, next := m.Signer(), s.again(t)
	replaceFile(t, filepath.Join(h.config.Plugged, pluggedKey), next.files[pluggedKey])
	for range 5 {
		h.later(m, time.Second)
	}
	if m.Signer() != was {
		t.Error("a bad set signs")
	}
	const want = "ca-cert.pem: the key in ca-key.pem is not that of this certificate"
	if p := show(t, m).Problems; len(p) != 1 || !strings.Contains(p[0], "the set read before stays in use: ") ||
		!strings.Contains(p[0], want) {
		t.Errorf("problems: %q", p)
	}
	if d := cmp.Diff([]string{"ashored", "refused  ashored"}, h.audited("ca.load")); d != "" {
		t.Errorf("audited (-want +got):\n%s", d)
	}
	if err := os.Remove(filepath.Join(h.config.Plugged, pluggedRoots)); err != nil {
		t.Fatal(err)
	}
	h.later(m, time.Second)
	h.later(m, time.Second)
	if p := show(t, m).Problems; len(p) != 1 || !strings.Contains(p[0], "root-cert.pem: no such file or directory") {
		t.Errorf("problems: %q", p)
	}
	next.write(t, h.config.Plugged)
	h.later(m, time.Second)
	if !m.Signer().Cert.Equal(next.cert.Cert) || len(show(t, m).Problems) > 0 {
		t.Errorf("the good set is not taken: %q", show(t, m).Problems)
	}
	s.write(t, h.config.Plugged)
	replaceFile(t, filepath.Join(h.config.Plugged, pluggedKey), next.files[pluggedKey])
	if _, err := NewManager(t.Context(), h.config); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it starts with a bad set: %v", err)
	}
}

// A set with another root strands those who do not have it: how many, and what to do, is told. With
// both roots nobody is.
func TestSwapStrands(t *testing.T) {
	t.Parallel()
	h, s, m := plug(t)
	old := m.Bundle()
	var leaves []LeafFact
	for i := range 7 {
		leaves = append(leaves, LeafFact{fmt.Sprintf("shop/w%d", i), RootID(s.root.Cert), old.ID, noon.Add(time.Hour)})
	}
	leaves = append(leaves, LeafFact{"shop/ended", RootID(s.root.Cert), old.ID, noon})
	h.fact(Facts{Leaves: leaves})
	fresh := newSet(t)
	fresh.write(t, h.config.Plugged)
	h.later(m, time.Second)
	p := show(t, m).Problems
	if len(p) != 1 || !strings.Contains(p[0],
		"7 workloads are stranded by the plugged-in set (shop/w0, shop/w1, shop/w2, shop/w3, shop/w4, …)") ||
		!strings.Contains(p[0], "below a root that they believe ("+RootID(s.root.Cert)+"), with that root and "+RootID(fresh.root.Cert)+" in root-cert.pem") {
		t.Errorf("problems: %q", p)
	}
	// So it is after a restart.
	if p := show(t, h.move()).Problems; len(p) != 1 {
		t.Errorf("problems after a restart: %q", p)
	}
	// The way without loss: first both roots, the old authority signing …
	s.write(t, h.config.Plugged)
	h.later(m, time.Second)
	s.files[pluggedRoots] = EncodeCertificates(s.root.Cert, fresh.root.Cert)
	// a moment ago: it has said nothing yet
	leaves = append(leaves, LeafFact{"shop/joined", RootID(s.root.Cert), "", noon.Add(time.Hour)})
	h.fact(Facts{Leaves: leaves})
	s.write(t, h.config.Plugged)
	h.later(m, time.Second)
	both := m.Bundle()
	if p := show(t, m).Problems; len(p) > 0 || len(both.Roots) != 2 {
		t.Errorf("problems with both: %q", p)
	}
	// … then, when all have both, the new one signs …
	for i := range leaves {
		leaves[i].BundleID = both.ID
	}
	h.fact(Facts{Leaves: leaves})
	fresh.files[pluggedRoots] = s.files[pluggedRoots]
	fresh.write(t, h.config.Plugged)
	h.later(m, time.Second)
	if p := show(t, m).Problems; len(p) > 0 || !m.Signer().Root.Equal(fresh.root.Cert) {
		t.Errorf("problems when the new one signs: %q", p)
	}
	// … and when all have renewed, the old root goes.
	for i := range leaves {
		leaves[i].RootID = RootID(fresh.root.Cert)
	}
	h.fact(Facts{Leaves: leaves})
	fresh.pack(t)
	fresh.write(t, h.config.Plugged)
	h.later(m, time.Second)
	if p := show(t, m).Problems; len(p) > 0 || len(m.Bundle().Roots) != 1 {
		t.Errorf("problems at the end: %q", p)
	}
}

// Two authorities in turn, then the second one alone too early: who believes that one alone is not
// helped by the first one's files, and is told of until he is, also when his certificate has ended.
// What helps is what is said.
func TestSwapBackStrands(t *testing.T) {
	t.Parallel()
	h, a, m := plug(t)
	b := newSet(t)
	swap := func(s *set, roots ...*Signer) *Bundle {
		t.Helper()
		s.files[pluggedRoots] = nil
		for _, r := range roots {
			s.files[pluggedRoots] = append(s.files[pluggedRoots], EncodeCertificates(r.Cert)...)
		}
		s.write(t, h.config.Plugged)
		h.later(m, time.Second)
		return m.Bundle()
	}
	fact := func(root *Signer, acknowledged, offered *Bundle) {
		h.fact(Facts{Grace: 48 * time.Hour, Leaves: []LeafFact{{"shop/web", RootID(root.Cert), acknowledged.ID,
			noon.Add(time.Hour)}}, Offered: map[string]string{"shop/web": offered.ID}})
	}
	problem := func(when string, words ...string) {
		t.Helper()
		p := show(t, m).Problems
		if len(words) == 0 && len(p) > 0 || len(words) > 0 && len(p) != 1 {
			t.Errorf("%s: problems %q", when, p)
			return
		}
		for _, w := range words {
			if !strings.Contains(p[0], w) {
				t.Errorf("%s: %q lacks %q", when, p[0], w)
			}
		}
	}
	both := swap(a, a.root, b.root)
	swap(b, a.root, b.root)
	fact(a.root, both, both)
	problem("the second one signs")
	alone := swap(b, b.root)
	problem("too early", "1 workloads hold certificates that nobody believes (shop/web)",
		"They renew as soon as they are connected")
	stranded := []string{"1 workloads are stranded by the plugged-in set (shop/web)",
		"they do not believe the root that signs now, " + RootID(a.root.Cert),
		"Plug in an authority below a root that they believe (" + RootID(b.root.Cert) + "), with that root and " + RootID(a.root.Cert) + " in root-cert.pem"}
	for name, has := range map[string]func(){
		"acknowledged": func() { fact(a.root, alone, alone) },
		"came with it": func() { fact(b.root, both, alone) },
	} {
		has()
		swap(a, a.root)
		problem(name+", the first one again", stranded...)
		h.later(m, 24*time.Hour)
		problem(name+", a day later", stranded...)
		m = h.move()
		problem(name+", after a restart", stranded...)
		swap(b, a.root, b.root)
		problem(name + ", what was said is done")
		h.later(m, -24*time.Hour)
	}
	fact(b.root, both, both)
	swap(a, a.root, b.root)
	swap(a, a.root)
	fact(a.root, m.Bundle(), m.Bundle())
	problem("back at the first one")
}

// A mesh that had a root of its own and gets a plugged-in one is told who is stranded, and so it is
// when it goes back.
func TestPlugInLater(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	own := h.move()
	h.fact(Facts{Leaves: []LeafFact{{"shop/web", RootID(own.Signer().Root), own.Bundle().ID, noon.Add(time.Hour)}}})
	h.config.Plugged = newSet(t).write(t, filepath.Join(t.TempDir(), "plugged"))
	m := h.move()
	if p := show(t, m).Problems; len(p) != 1 || !strings.Contains(p[0],
		"1 workloads are stranded by the plugged-in set") {
		t.Errorf("problems: %q", p)
	}
	h.config.Plugged = ""
	if p := show(t, h.move()).Problems; len(p) > 0 {
		t.Errorf("problems of a change that nobody has noticed: %q", p)
	}
	h.fact(Facts{Leaves: []LeafFact{{"shop/web", RootID(m.Signer().Root), m.Bundle().ID, noon.Add(time.Hour)}}})
	if p := show(t, h.move()).Problems; len(p) != 1 ||
		!strings.Contains(p[0], "1 workloads are stranded by leaving the plugged-in set") {
		t.Errorf("problems: %q", p)
	}
}

// Rotating a plugged-in authority is its operator's work, who is told how.
func TestRotatePlugged(t *testing.T) {
	t.Parallel()
	_, _, m := plug(t)
	if _, err := m.Rotate(t.Context(), RotateRequest{}); err == nil ||
		!strings.Contains(err.Error(), "root-cert.pem holds the old root and the new one") {
		t.Errorf("got %v", err)
	}
}
