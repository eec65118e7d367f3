package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/testport"
)

// copyExample is a copy with one record of each kind, and what it is made of.
func copyExample() []copyRecord {
	return []copyRecord{
		{kind: copyBuild, body: []byte("envoy 1.40")},
		{kind: copyType, name: clusterTypeURL, flags: copyFlagAll | copyFlagComplete},
		{kind: copyOffered, name: "a", version: "v1", body: []byte("cluster a"), flags: copyFlagAccepted},
		{kind: copyType, name: routeTypeURL},
		{kind: copyWanted, name: "r1"},
		{kind: copyWanted, name: "r2"},
		{kind: copyGone, name: "r2"},
		{kind: copyOffered, name: "r1", version: "v2", body: []byte("route"), words: "it is bad", at: time.Unix(1, 2)},
		{kind: copyAccepted, name: "r1", version: "v1", body: []byte("older route"), typeURL: "other"},
		{kind: copyProbe, name: "web", body: []byte("probe")},
	}
}

func recordsOf(list []copyRecord) records {
	return func(yield func(*copyRecord) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

func exampleOwner() copyOwner { return copyOwner{node: "n", identity: "i", machine: "m"} }

// encodeExample is the example as it stands on disk, saved and confirmed at that time.
func encodeExample(t testing.TB, at time.Time, key []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeCopy(&b, copyHeader{saved: at, confirmed: at, owner: exampleOwner()}, recordsOf(copyExample()), key); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// decodeExample reads a copy and counts the records that were handed out.
func decodeExample(raw, key []byte, owner copyOwner) (h copyHeader, got []copyRecord, err error) {
	h, err = readCopy(bytes.NewReader(raw), int64(len(raw)), owner, key, func(_ copyHeader, r *copyRecord) error {
		mine := *r
		mine.body = bytes.Clone(r.body)
		got = append(got, mine)
		return nil
	})
	return h, got, err
}

// What is written is what is read.
func TestCopyRoundTrip(t *testing.T) {
	t.Parallel()
	key, at := []byte("key"), time.Unix(1_700_000_000, 5)
	h, got, err := decodeExample(encodeExample(t, at, key), key, exampleOwner())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(copyExample(), got, cmp.AllowUnexported(copyRecord{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !h.saved.Equal(at) || !h.confirmed.Equal(at) || h.owner != exampleOwner() || h.clean {
		t.Errorf("header %+v", h)
	}
}

// Whatever byte is changed, and wherever it is cut, a copy is refused whole, with a reason.
func TestCopyDamage(t *testing.T) {
	t.Parallel()
	key := []byte("key")
	raw := encodeExample(t, time.Unix(1_700_000_000, 0), key)
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			if _, got, err := decodeExample(bad, key, exampleOwner()); err == nil || len(got) > 0 || err.Error() == "" {
				t.Fatalf("byte %d, bit %d: %d records, %v", i, bit, len(got), err)
			}
		}
		if _, got, err := decodeExample(raw[:i], key, exampleOwner()); err == nil || len(got) > 0 {
			t.Fatalf("cut at %d: %d records, %v", i, len(got), err)
		} else if !strings.Contains(err.Error(), "cut short") {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, _, err := decodeExample(append(bytes.Clone(raw), 0), key, exampleOwner()); err == nil {
		t.Error("a copy with one byte more is accepted")
	}
}

// A copy that may not be used says why.
func TestCopyRefused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	newer := encodeExample(t, now, nil)
	binary.BigEndian.PutUint32(newer[len(copyMagic):], copyFormat+1)
	for name, c := range map[string]struct {
		raw   []byte
		owner copyOwner
		want  string
	}{
		"another machine":  {encodeExample(t, now, nil), copyOwner{node: "n", identity: "i", machine: "x"}, "another machine"},
		"another identity": {encodeExample(t, now, nil), copyOwner{node: "n", identity: "x", machine: "m"}, "identity"},
		"another node":     {encodeExample(t, now, nil), copyOwner{node: "x", identity: "i", machine: "m"}, "node"},
		"newer format":     {newer, exampleOwner(), "newer ashore-agent"},
		"another file":     {[]byte("this is a text of some length"), exampleOwner(), "no copy"},
		"empty":            {nil, exampleOwner(), "cut short"},
	} {
		for _, key := range []string{"", "another key"} {
			if _, got, err := decodeExample(c.raw, []byte(key), c.owner); err == nil || !strings.Contains(err.Error(), c.want) || len(got) > 0 {
				t.Errorf("%s, key %q: %d records, %v, want %q", name, key, len(got), err, c.want)
			}
		}
	}
	for name, c := range map[string]struct {
		at   time.Duration
		want string
	}{
		"too old":         {-25 * time.Hour, "too old"},
		"from the future": {time.Hour, "future"},
		"old enough":      {-23 * time.Hour, ""},
		"clocks differ":   {time.Minute, ""},
	} {
		h := copyHeader{saved: now.Add(c.at), confirmed: now.Add(c.at)}
		err := h.usable(now, 24*time.Hour)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A copy is confirmed without being written again, and only the one that stands there.
func TestCopyConfirmed(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now().Round(0)
	open := func() *copyFolder {
		c, err := openCopyFolder(dir, copyOwner{node: "n", identity: "i"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	load := func(c *copyFolder, at time.Time) (copyHeader, error) {
		return c.load(at, 24*time.Hour, func(copyHeader, *copyRecord) error { return nil })
	}
	c := open()
	if _, err := load(c, now); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no copy: %v", err)
	}
	old := now.Add(-30 * time.Hour)
	for _, list := range [][]copyRecord{copyExample(), nil} { // an empty one has times too
		if err := c.save(copyHeader{saved: old, confirmed: old}, recordsOf(list)); err != nil {
			t.Fatal(err)
		}
		if _, err := load(open(), now); err == nil || !strings.Contains(err.Error(), "too old") {
			t.Errorf("%d records: %v, want too old", len(list), err)
		}
		if err := c.confirm(now.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if h, err := load(open(), now); err != nil || !h.confirmed.Equal(now.Add(-time.Hour)) {
			t.Errorf("%d records: confirmed at %s: %v", len(list), h.confirmed, err)
		}
	}
	older, err := os.ReadFile(c.path())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.save(copyHeader{saved: now, confirmed: now}, recordsOf(copyExample())); err != nil {
		t.Fatal(err)
	}
	if err := c.confirm(now); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path(), older, 0o600); err != nil { // somebody puts the older copy back
		t.Fatal(err)
	}
	if _, err := load(open(), now); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("the older copy with the newer confirmation: %v, want too old", err)
	}
	for _, name := range []string{"key", "held", "confirmed"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	if _, err := load(open(), now); !errors.Is(err, errCopyDamaged) {
		t.Errorf("without its key: %v", err)
	}
}

// No bytes make a reader of copies panic, or hand out what the key does not prove.
func FuzzCopy(f *testing.F) {
	key := []byte("key")
	good := encodeExample(f, time.Unix(1_700_000_000, 0), key)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, got, err := decodeExample(raw, key, exampleOwner())
		if (err == nil || len(got) > 0) && !bytes.Equal(raw, good) {
			t.Errorf("%d records of other bytes: %v", len(got), err)
		}
	})
}

// No record, in whatever order, makes a proxy panic that starts on it, or an Envoy's first request after that.
func FuzzRestore(f *testing.F) {
	f.Add([]byte{byte(copyType), 0, byte(copyOffered), 1, byte(copyAccepted), 1, byte(copyWanted), 2, byte(copyGone), 2, byte(copyBuild), 3})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := restoring{relay: newRelay()}
		types := []string{clusterTypeURL, routeTypeURL, endpointTypeURL, ""}
		for len(raw) > 1 {
			n := raw[1]
			c := copyRecord{kind: copyKind(raw[0] % 8), name: fmt.Sprint(n % 8), version: fmt.Sprint(n), body: []byte{n}, flags: uint64(n)}
			if c.kind == copyType {
				c.name = types[int(n)%len(types)]
			}
			if n > 127 {
				c.words = "bad"
			}
			if r.take(copyHeader{}, &c) != nil {
				return
			}
			raw = raw[2:]
		}
		up := r.relay.connect()
		for a := up.next(); a != nil; a = up.next() {
			a.Encode()
		}
		st := r.relay.open(false, time.Time{})
		for _, typeURL := range types[:3] {
			ask := []byte(nil)
			if len(typeURL) > 0 {
				ask = append(append(ask, 2<<3|2, byte(len(typeURL))), typeURL...)
			}
			req, err := st.reader.Read(ask)
			if err != nil {
				t.Fatal(err)
			}
			if err := st.receive(req, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := 0; ; i++ {
			if resp, _ := st.next(time.Time{}); resp == nil {
				break
			}
			if i > 10 {
				t.Fatal("it answers without end")
			}
		}
	})
}

// copied waits until the copy on disk holds n resources, and returns it as it would stand there after kill -9.
func copied(t *testing.T, p *proxied, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	becomesTrue(t, func() string {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(p.copy.dir)); err != nil {
			return err.Error() // a temporary file that was renamed meanwhile
		}
		c, err := openCopyFolder(dir, copyOwner{node: p.cfg.Node.GetId(), identity: p.cfg.Identity})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		if _, err := c.load(time.Now(), time.Hour, func(_ copyHeader, r *copyRecord) error {
			if r.kind == copyOffered && r.flags&copyFlagAccepted != 0 {
				found++
			}
			return nil
		}); err != nil {
			return err.Error()
		}
		if found != n {
			return fmt.Sprintf("%d resources are in the copy, want %d", found, n)
		}
		return ""
	})
	return dir
}

func withCopy(dir string) func(*proxyConfig) {
	return func(c *proxyConfig) { c.Copy, c.Identity = dir, "spiffe://mesh.example/ns/shop/sa/web" }
}

// After kill -9 of the agent, with no control plane there, a new Envoy gets everything from the copy.
// The control plane comes back and sends nothing.
func TestProxyStartsOnCopy(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, delta bool) {
		r := startReplica(t, testport.Address(t), chain(1, "c0")...)
		p := startProxy(t, withCopy(filepath.Join(t.TempDir(), "copy")), r.address)
		e := fakeEnvoy(p, delta, nil)
		leave := envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
		dir := copied(t, p, 4)
		leave()
		p.stop()
		r.stop()

		again := startProxy(t, withCopy(dir), r.address)
		fresh := fakeEnvoy(again, delta, nil)
		envoyOn(t, fresh)
		becomesTrue(t, func() string { return leads(fresh, 1, "r1", "c0") })
		if s := again.Status(); s.CopyFrom.IsZero() || s.Connected != "" || !strings.Contains(s.Text(time.Now()), "running on a copy from ") {
			t.Errorf("status %q", s.Text(time.Now()))
		}
		back := startReplica(t, r.address, chain(1, "c0")...)
		becomesTrue(t, func() string {
			if s := again.Status(); s.Connected == "" {
				return s.Text(time.Now())
			}
			return back.latest()
		})
		if n := back.counts.sent(); n != 0 {
			t.Errorf("the control plane sent %d responses, want none", n)
		}
		back.publish(chain(1, "c1")...)
		becomesTrue(t, func() string { return leads(fresh, 1, "r1", "c1") })
	})
}

// A copy that is damaged, or of another identity, is refused with a reason, and the proxy begins without it.
func TestProxyRefusesCopy(t *testing.T) {
	t.Parallel()
	r := startReplica(t, testport.Address(t), chain(1, "c0")...)
	p := startProxy(t, withCopy(filepath.Join(t.TempDir(), "copy")), r.address)
	e := fakeEnvoy(p, true, nil)
	envoyOn(t, e)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
	dir := copied(t, p, 4)
	for name, c := range map[string]struct {
		spoil func(raw []byte) []byte
		edit  func(*proxyConfig)
		want  string
	}{
		"bit":      {func(raw []byte) []byte { raw[len(raw)/2] ^= 4; return raw }, nil, "damaged"},
		"cut":      {func(raw []byte) []byte { return raw[:len(raw)-10] }, nil, "cut short"},
		"identity": {nil, func(c *proxyConfig) { c.Identity = "spiffe://mesh.example/ns/shop/sa/other" }, "identity"},
		"old":      {nil, func(c *proxyConfig) { c.Now = func() time.Time { return time.Now().Add(25 * time.Hour) } }, "too old"},
		"future":   {nil, func(c *proxyConfig) { c.Now = func() time.Time { return time.Now().Add(-time.Hour) } }, "future"},
	} {
		mine := filepath.Join(t.TempDir(), name)
		if err := os.CopyFS(mine, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if c.spoil != nil {
			raw, err := os.ReadFile(filepath.Join(mine, "held"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(mine, "held"), c.spoil(raw), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		q := startProxy(t, func(pc *proxyConfig) {
			withCopy(mine)(pc)
			if c.edit != nil {
				c.edit(pc)
			}
		}, r.address)
		if s := q.Status(); !strings.Contains(s.CopyRefused, c.want) || s.Resources != 0 {
			t.Errorf("%s: %d resources, reason %q, want %q", name, s.Resources, s.CopyRefused, c.want)
		}
		q.stop()
	}
}

// What is too old costs Envoy its listeners when the operator chose so, until a control plane answers; else traffic goes on.
func TestProxyTooOld(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{true, false} {
		r := startReplica(t, testport.Address(t), chain(1, "c0")...)
		p := startProxy(t, func(c *proxyConfig) { c.MaxAge, c.RefuseOld = 300*time.Millisecond, refuse }, r.address)
		e := fakeEnvoy(p, true, nil)
		envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
		r.stop()
		becomesTrue(t, func() string {
			if n := len(e.Listeners()); !p.Status().Old || (n == 0) != refuse {
				return fmt.Sprintf("%d listeners, refuse %v", n, refuse)
			}
			return ""
		})
		startReplica(t, r.address, chain(1, "c0")...)
		becomesTrue(t, func() string {
			if len(e.Listeners()) != 1 || p.Status().Old {
				return "the listener is not back"
			}
			return leads(e, 1, "r1", "c0")
		})
	}
}
