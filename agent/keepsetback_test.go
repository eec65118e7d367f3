package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/ca"
)

// After a clock that was ahead is set back, a new certificate is requested at once, and again until
// it arrives.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		const life = 24 * time.Hour
		k := kept(t, m, life)
		var ahead atomic.Int64
		var away atomic.Bool
		k.clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		k.ask = func(_ context.Context, q certificateRequest) (*Identity, net.Addr, error) {
			if away.Load() {
				return nil, nil, errors.New("away")
			}
			id, err := parseAnswer(q.key, issuedAt(t, m, q, life, k.clock()))
			return id, nil, err
		}
		defer keeping(t, k)()
		ahead.Store(int64(48 * time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		away.Store(true)
		ahead.Store(0)
		time.Sleep(2 * clockLook)
		synctest.Wait()
		if n := k.Renewal(); n.Count != 1 || n.Trouble == nil {
			t.Fatalf("set back, and the control plane is away: %+v", n)
		}
		away.Store(false)
		time.Sleep(2 * longestRetry)
		synctest.Wait()
		if n := k.Renewal(); n.Trouble != nil || n.Count != 2 || time.Now().Before(k.Identity().Leaf().NotBefore) {
			t.Errorf("in the end: %+v, the certificate begins at %s", n, k.Identity().Leaf().NotBefore)
		}
	})
}

// An agent that starts with a certificate that is not valid yet requests another at once.
func TestStartBeforeTheCertificateBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		key := must(newKey())
		later := time.Now().Add(48 * time.Hour)
		id := must(parseAnswer(key, issuedAt(t, m, certificateRequest{key: key}, 24*time.Hour, later)))
		dir := stateFolder(t)
		if err := (store{dir}).save(id, Joined{Version: 1, Group: "shop/web", Workload: "web-1", At: later,
			Renewed: later}); err != nil {
			t.Fatal(err)
		}
		k := keeper(t, dir)
		asked := answers(t, k, m, 24*time.Hour, func() error { return nil })
		defer keeping(t, k)()
		time.Sleep(2 * clockLook)
		synctest.Wait()
		if len(asked()) != 1 || time.Now().Before(k.Identity().Leaf().NotBefore) {
			t.Errorf("asked %d times, the certificate begins at %s", len(asked()), k.Identity().Leaf().NotBefore)
		}
	})
}

// issuedAt is what an authority answers whose clock says now.
func issuedAt(t *testing.T, m *mesh, q certificateRequest, life time.Duration, now time.Time) []string {
	t.Helper()
	r := must(ca.ParseRequest(must(newRequest(q.key))))
	leaf := must(ca.Issue(m.signer, ca.Rules{Validity: life}, ca.Grant{ID: web(), Request: r}, now, rand.Reader))
	return []string{string(ca.EncodeCertificates(leaf)), string(ca.EncodeCertificates(m.signer.Cert)),
		string(ca.EncodeCertificates(m.root.Cert))}
}
