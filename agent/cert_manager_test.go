package agent

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// web is the identity of most tests.
func web() spiffe.ID {
	return spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}
}

// kept is a manager with a fresh certificate on disk.
func kept(t *testing.T, m *mesh, life time.Duration) *CertManager {
	t.Helper()
	dir := stateFolder(t)
	now := time.Now()
	if err := (store{dir}).save(m.identity(t, web(), life),
		Joined{Version: 1, Group: "shop/web", Workload: "web-1", At: now, Renewed: now}); err != nil {
		t.Fatal(err)
	}
	return manager(t, dir)
}

func manager(t *testing.T, dir string) *CertManager {
	t.Helper()
	k, err := NewCertManager(CertManagerConfig{Dir: dir, Addresses: []string{"127.0.15.9:1"}, Name: "web-1", Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// answers makes a manager get certificates from m, or what err says.
func answers(t *testing.T, k *CertManager, m *mesh, life time.Duration, err func() error) (asked func() []time.Time) {
	var mu sync.Mutex
	var times []time.Time // guarded by mu
	var keys []string     // of the manager's goroutine alone
	k.ask = func(_ context.Context, q certificateRequest) (*Identity, error) {
		mu.Lock()
		times = append(times, time.Now())
		mu.Unlock()
		if h := keyHash(q.key); len(keys) == 0 || keys[len(keys)-1] != h {
			keys = append(keys, h)
		}
		if e := err(); e != nil {
			return nil, e
		}
		if len(keys) != 1 {
			t.Errorf("%d keys were tried for one certificate", len(keys))
		}
		keys = nil
		id, e := parseAnswer(q.key, m.issue(t, web(), must(newRequest(q.key, "")), life))
		return id, e
	}
	return func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(times)
	}
}

// running keeps until the bubble's test ends it.
func keeping(t *testing.T, k *CertManager) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A certificate is renewed between 40 and 60 % of its life, again and again, with a new key each
// time; all subscribers are notified.
func TestRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		const life = 24 * time.Hour
		k := kept(t, m, life)
		asked := answers(t, k, m, life, func() error { return nil })
		before := k.Identity()
		last := time.Now()
		changed := k.Watch(t.Context())
		defer keeping(t, k)()
		for n := range 5 {
			<-changed
			<-k.Renewed()
			synctest.Wait()
			times := asked()
			if len(times) != n+1 {
				t.Fatalf("%d requests, want %d", len(times), n+1)
			}
			if at := times[n].Sub(last); at < life*2/5 || at > life*3/5+time.Second {
				t.Errorf("renewed after %v of %v", at, life)
			}
			last = times[n]
			if id := k.Identity(); id == before || keyHash(id.Key) == keyHash(before.Key) {
				t.Error("the same key again")
			}
			before = k.Identity()
			on, joined, err := k.store.load()
			if err != nil || on.Serial() != k.Identity().Serial() || !joined.Renewed.Equal(times[n]) {
				t.Errorf("on disk %v, %v, %v", on, joined, err)
			}
		}
		if n := k.Renewal(); n.Count != 5 || n.Err != nil {
			t.Errorf("renewal %+v", n)
		}
	})
}

// While the control plane is away it is tried again, ever less often and with the same key, and the
// old certificate stays; also after its end, for the control plane may still know the key.
func TestRenewalProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		const life = 24 * time.Hour
		k := kept(t, m, life)
		back := time.Now().Add(30 * time.Hour)
		first := k.Identity()
		asked := answers(t, k, m, life, func() error {
			if time.Now().Before(back) {
				return &RefusedError{Address: "a:1", Text: "no"}
			}
			return nil
		})
		end := keeping(t, k)
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		if n := k.Renewal(); n.Tries < 20 || n.Err == nil || k.Identity() != first {
			t.Errorf("renewal %+v, identity changed: %v", n, k.Identity() != first)
		}
		time.Sleep(8 * time.Hour)
		synctest.Wait()
		end()
		if n := k.Renewal(); n.Err != nil || n.Tries != 0 || n.Count != 1 || k.Identity() == first {
			t.Errorf("after the control plane is back: %+v", n)
		}
		times := asked()
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap > longestRetry*3/2 {
				t.Fatalf("%v between two tries", gap)
			}
		}
		if n := len(times); n > 20*60/2 {
			t.Errorf("%d tries in 20 hours: too many", n)
		}
	})
}

// An agent that starts with a certificate from disk sends no request before the renewal is due, and
// continues where the former one stopped.
func TestRenewalAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		const life = 24 * time.Hour
		dir := kept(t, m, life).store.dir
		start := time.Now()
		for range 4 {
			k := manager(t, dir)
			asked := answers(t, k, m, life, func() error { return nil })
			end := keeping(t, k)
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			end()
			if len(asked()) != 0 {
				t.Fatalf("asked %v after the certificate came", asked()[0].Sub(start))
			}
		}
		time.Sleep(10 * time.Hour) // off
		k := manager(t, dir)
		asked := answers(t, k, m, life, func() error { return nil })
		late := time.Now()
		end := keeping(t, k)
		time.Sleep(time.Minute)
		synctest.Wait()
		end()
		if times := asked(); len(times) != 1 || times[0].Sub(late) > 10*time.Second {
			t.Errorf("renewed at %v, want it soon after the start, once", times)
		}
	})
}

// Agents that begin together after their certificates were due, as after a power cut, do not ask at
// one moment.
func TestLateTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := kept(t, newMesh(t, "cluster.local"), 24*time.Hour)
		time.Sleep(20 * time.Hour)
		first, last := 10*time.Second, time.Duration(0)
		for range 200 {
			k.plan(time.Now(), true)
			wait := time.Until(k.Renewal().Due)
			first, last = min(first, wait), max(last, wait)
		}
		if first > time.Second || last < 9*time.Second || last > 10*time.Second {
			t.Errorf("they ask %v to %v after they began, want 0 to 10s", first, last)
		}
	})
}

// Ten thousand machines that joined at one moment renew over a fifth of the life, evenly.
func TestRenewalSpread(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	from := time.Now()
	const life, parts = 24 * time.Hour, 20
	var count [parts]int
	for range 10_000 {
		at := renewalTime(from, from.Add(life), rng.Float64()).Sub(from)
		part := int((at - life*2/5) * parts / (life / 5))
		if at < life*2/5 || part >= parts {
			t.Fatalf("renewed after %v", at)
		}
		count[part]++
	}
	for i, n := range count {
		if n < 400 || n > 600 {
			t.Errorf("%d renew in part %d of %d, want about 500", n, i, parts)
		}
	}
}

// A trust bundle is taken whole or not at all: an empty one and an unreadable one change nothing.
func TestSetRoots(t *testing.T) {
	t.Parallel()
	m, other := newMesh(t, "cluster.local"), newMesh(t, "cluster.local")
	k := kept(t, m, time.Hour)
	mine, more := string(ca.EncodeCertificates(m.root.Cert)), string(ca.EncodeCertificates(other.root.Cert))
	leaf := string(ca.EncodeCertificates(k.Identity().Leaf()))
	for name, bundle := range map[string][]string{
		"none": nil, "empty": {"", "\n"}, "garbage": {mine, "garbage"}, "a leaf": {mine, leaf}, "half": {mine, more[:200]},
	} {
		before := k.Identity()
		if err := k.SetRoots(bundle); err == nil || !strings.Contains(err.Error(), "the former one stays") ||
			k.Identity() != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	before := k.Identity()
	if err := k.SetRoots([]string{mine}); err != nil || k.Identity() != before {
		t.Errorf("the same again: %v; want no change", err)
	}
	changed := k.Watch(t.Context())
	if err := k.SetRoots([]string{mine + more}); err != nil {
		t.Fatal(err)
	}
	<-changed
	select {
	case <-k.Renewed():
		t.Error("new roots count as a new certificate: connections would be opened anew")
	default:
	}
	id, _, err := k.store.load()
	if err != nil || id.Roots.ID != ca.NewBundle(m.root.Cert, other.root.Cert).ID ||
		id.Serial() != before.Serial() {
		t.Errorf("on disk: %v, %v", id, err)
	}
	// With both roots a server below the other one is accepted.
	check := &serverCheck{roots: k.Identity().Roots, trustDomain: "cluster.local", now: time.Now}
	if err := check.verify(parse(t, other.server(t, nil).Certificate)); err != nil {
		t.Errorf("a control plane below the new root: %v", err)
	}
	check.trustDomain = "else.example"
	if err := check.verify(parse(t, other.server(t, nil).Certificate)); err == nil ||
		!strings.Contains(err.Error(), "belongs to else.example") {
		t.Errorf("a control plane of another trust domain: %v", err)
	}
}

// A root that is removed from the mesh is no longer trusted, even if this workload's own
// certificate is below it; then a new certificate is asked for at once. Until it comes, the status
// says what is wrong, after a restart too.
func TestRootTakenOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, next := newMesh(t, "cluster.local"), newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		back := time.Now().Add(time.Hour + time.Second/4)
		asked := answers(t, k, next, 24*time.Hour, func() error {
			if time.Now().Before(back) {
				return errors.New("away")
			}
			return nil
		})
		end := keeping(t, k)
		time.Sleep(time.Hour)
		if err := k.SetRoots([]string{string(ca.EncodeCertificates(next.root.Cert))}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(asked()) != 1 || k.Identity().Roots.ID != ca.NewBundle(next.root.Cert).ID {
			t.Errorf("%d requests, roots %v", len(asked()), k.Identity().Roots)
		}
		again := manager(t, k.store.dir)
		r := &Report{}
		reportIdentity(r, again.Identity(), again.Joined(), again.Renewal(), time.Now())
		if r.Lines[1].State != stateBad || !strings.Contains(r.Lines[1].Text,
			"its root is not one of the mesh any more") || todos(r)[0] != "join again" {
			t.Errorf("status %+v", r)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		end()
		if err := k.Identity().rooted(); err != nil {
			t.Error(err)
		}
	})
}

func parse(t *testing.T, ders [][]byte) (out []*x509.Certificate) {
	t.Helper()
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// A certificate for another identity, or one that is not valid now, is rejected.
func TestTakeRefused(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	k := kept(t, m, time.Hour)
	before := k.Identity()
	admin := m.identity(t, spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "admin"},
		time.Hour)
	if err := k.take(admin, time.Now()); err == nil ||
		!strings.Contains(err.Error(),
			"gave a certificate for spiffe://cluster.local/ns/shop/sa/admin, and this workload is "+
				"spiffe://cluster.local/ns/shop/sa/web") {
		t.Errorf("another identity: %v", err)
	}
	next := m.identity(t, web(), time.Hour)
	if err := k.take(next, time.Now().Add(-time.Hour)); err == nil || !strings.Contains(err.Error(),
		"begins at ") || !strings.Contains(err.Error(), "set the clock") {
		t.Errorf("a clock that is late: %v", err)
	}
	if k.Identity() != before {
		t.Error("it was taken nevertheless")
	}
}

// If a save stops at any step, key and chain on disk are both old or both new, and the next save
// works.
func TestKillPoints(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	joined := Joined{Version: 1, Group: "shop/web", Workload: "web-1", At: time.Now(), Renewed: time.Now()}
	old, next := m.identity(t, web(), time.Hour), m.identity(t, web(), time.Hour)
	for name, stop := range map[string]func(s store) error{
		"half of the roots": func(s store) error {
			return os.WriteFile(filepath.Join(s.dir, ".roots.pem.new-1"), []byte("half"), 0o600)
		},
		"the roots, no more": func(s store) error { return s.write(rootsFile, next.Roots.PEM()) },
		"half of the identity": func(s store) error {
			return os.WriteFile(filepath.Join(s.dir, ".identity.pem.new-1"), []byte("half"), 0o600)
		},
		"all": func(s store) error { return s.save(next, joined) },
	} {
		t.Run(name, func(t *testing.T) {
			s := store{stateFolder(t)}
			if err := errors.Join(s.save(old, joined), stop(s)); err != nil {
				t.Fatal(err)
			}
			want := old.Serial()
			if name == "all" {
				want = next.Serial()
			}
			if id, _, err := s.load(); err != nil || id.Serial() != want {
				t.Fatalf("read %v, %v; want %s", id, err, want)
			}
			last := m.identity(t, web(), time.Hour)
			if err := s.save(last, joined); err != nil {
				t.Fatal(err)
			}
			if id, _, err := s.load(); err != nil || id.Serial() != last.Serial() {
				t.Errorf("after another save: %v, %v", id, err)
			}
		})
	}
}

// What is wrong with the files is named; a reader never gets a key with another's certificate.
func TestLoadBroken(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	joined := Joined{Version: 1, Group: "shop/web", Workload: "web-1", At: time.Now(), Renewed: time.Now()}
	id, other := m.identity(t, web(), time.Hour), newMesh(t, "cluster.local").identity(t, web(), time.Hour)
	text := string(must(encodeIdentity(id, joined)))
	key, theirs := string(must(ca.EncodeKey(id.Key))), string(must(ca.EncodeKey(other.Key)))
	joinedAs := func(json string) string {
		return key + string(pem.EncodeToMemory(&pem.Block{Type: joinedBlock, Bytes: []byte(json)}))
	}
	for _, tc := range []struct {
		name, file, content, want string
	}{
		{"no key", identityFile, "", "identity.pem: it holds no PEM block of a private key"},
		{"another key", identityFile, strings.Replace(text, key, theirs, 1), "the certificate is for another key"},
		{"only a key", identityFile, key, `identity.pem: the block "ASHORE JOINED" does not follow the key`},
		{"half a chain", identityFile, strings.TrimSuffix(text, string(ca.EncodeCertificates(id.Chain...))),
			"identity.pem: it holds no PEM block"},
		{"no roots", rootsFile, "", "roots.pem: it holds no PEM block of a certificate"},
		{"no group", identityFile, joinedAs("{"), `identity.pem: "ASHORE JOINED": `},
		{"a form to come", identityFile, joinedAs(`{"v":2}`), "identity.pem: its form is 2, this agent knows 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := store{stateFolder(t)}
			if err := errors.Join(s.save(id, joined), os.WriteFile(filepath.Join(s.dir, tc.file), []byte(tc.content),
				0o600)); err != nil {
				t.Fatal(err)
			}
			_, _, err := s.load()
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "join again") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// A machine that slept renews soon after it wakes: its timers stopped.
func TestRenewalAfterSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		asked := answers(t, k, m, 24*time.Hour, func() error { return nil })
		var slept atomic.Int64
		k.clock = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		defer keeping(t, k)()
		time.Sleep(time.Hour)
		synctest.Wait()
		slept.Store(int64(20 * time.Hour))
		time.Sleep(2 * clockCheck)
		synctest.Wait()
		if n := len(asked()); n != 1 {
			t.Errorf("%d requests after the machine woke, want one", n)
		}
	})
}

// A certificate that a control plane refuses is replaced at once, and not again because the new one
// is refused too; what cannot be had is tried for as always.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		asked := answers(t, k, m, 24*time.Hour, func() error { return nil })
		end := keeping(t, k)
		defer end()
		refuse := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			for range 3 {
				k.Refused()
				synctest.Wait()
			}
			if got := len(asked()); got != want {
				t.Errorf("asked %d times, want %d", got, want)
			}
		}
		refuse(time.Hour, 1)
		refuse(time.Second, 1)
		refuse(time.Minute, 2)
	})
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		asked := answers(t, k, m, 24*time.Hour, func() error { return errors.New("away") })
		end := keeping(t, k)
		defer end()
		time.Sleep(time.Hour)
		k.Refused()
		synctest.Wait()
		first := len(asked())
		for range 100 {
			k.Refused()
			synctest.Wait()
		}
		if got := len(asked()); first != 1 || got != 1 {
			t.Errorf("asked %d times, then %d; want one", first, got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(asked()) < 2 {
			t.Error("it is not tried again")
		}
	})
}
