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
	n.cert = made(t, s.above, NewKey(), nil)
	n.pack(t)
	return n
}

// A set whose files are replaced one after the other is taken when the last one is there, and never
// half of it.
func TestSwapFileByFile(t *testing.T) {
	t.Parallel()
	h, s, m := plug(t)
	changed := m.Changed(t.Context())
	if s := show(t, m); s.Kind != "plugged-in" || s.Roots[0].State != "signs" || !s.Signer.Renew.IsZero() ||
		len(s.Problems) > 0 {
		t.Errorf("shown: %+v", s)
	}
	fresh := newSet(t) // another root: no file of it fits one of the old but the roots
	both := EncodeCertificates(s.root.Cert, fresh.root.Cert)
	replaceFile(t, filepath.Join(h.config.Plugged, pluggedRoots), both)
	h.later(m, time.Second)
	h.later(m, time.Second)
	<-changed
	was := m.Signer()
	for i, name := range []string{pluggedKey, pluggedChain, pluggedCert} {
		replaceFile(t, filepath.Join(h.config.Plugged, name), fresh.files[name])
		h.later(m, time.Second)
		if i < 2 && m.Signer() != was {
			t.Fatalf("half a set signs: %s was replaced last", name)
		}
	}
	if !m.Signer().Cert.Equal(fresh.cert.Cert) || len(m.Bundle().Roots) != 2 {
		t.Fatal("the set that is whole does not sign")
	}
	<-changed
	if err := believes(t, m.Signer(), noon, fresh.root.Cert); err != nil {
		t.Error(err)
	}
	if err := joins(t, m, RootID(fresh.root.Cert), "localhost", noon); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"ashored", "ashored", "ashored"}, h.audited("ca.load")); d != "" {
		t.Errorf("audited (-want +got):\n%s", d)
	}
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

// A bad set is refused, with the reason, and the one before stays; a good one after it is
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
	const want = "ca-key.pem: tls: private key does not match public key"
	if p := show(t, m).Problems; len(p) != 1 || !strings.Contains(p[0], "those that were read before stay in use: ") ||
		!strings.Contains(p[0], want) {
		t.Errorf("problems: %q", p)
	}
	if d := cmp.Diff([]string{"ashored"}, h.audited("ca.load")); d != "" {
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

// A set whose root workloads do not trust yet is refused while ashored runs. In three steps nobody
// is left behind, and workloads with a certificate below a root that is gone are a problem.
func TestSwapRoot(t *testing.T) {
	t.Parallel()
	h, s, m := plug(t)
	fresh := newSet(t)
	swap := func(of *set, roots ...*Signer) {
		t.Helper()
		of.files[pluggedRoots] = nil
		for _, r := range roots {
			of.files[pluggedRoots] = append(of.files[pluggedRoots], EncodeCertificates(r.Cert)...)
		}
		of.write(t, h.config.Plugged)
		h.later(m, time.Second)
		h.later(m, time.Second)
	}
	var leaves []Dependent
	for i := range 7 {
		leaves = append(leaves, Dependent{fmt.Sprintf("shop/w%d", i), RootID(s.root.Cert), noon.Add(time.Hour)})
	}
	leaves = append(leaves, Dependent{"shop/ended", RootID(s.root.Cert), noon})
	h.fact(leaves...)
	problem := func(when string, words string) {
		t.Helper()
		p := show(t, m).Problems
		if words == "" && len(p) > 0 || words != "" && (len(p) != 1 || !strings.Contains(p[0], words)) {
			t.Errorf("%s: problems %q, want %q", when, p, words)
		}
	}
	swap(fresh, fresh.root)
	problem("at once", "which no workload trusts yet")
	if !m.Signer().Root.Equal(s.root.Cert) {
		t.Fatal("it signs")
	}
	swap(s, s.root, fresh.root)
	problem("both roots", "")
	swap(fresh, s.root, fresh.root)
	problem("the new one signs", "")
	swap(fresh, fresh.root)
	problem("too early", "7 workloads, such as shop/w0, have certificates below a root that is not trusted any more")
	for i := range leaves {
		leaves[i].RootID = RootID(fresh.root.Cert)
	}
	h.fact(leaves...)
	problem("at the end", "")
	swap(s, s.root)
	if m = h.move(); !m.Signer().Root.Equal(s.root.Cert) {
		t.Error("a restart does not take another root")
	}
	problem("after a restart", "7 workloads")
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
