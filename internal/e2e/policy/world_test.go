package policy

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// address is where the Envoys of these tests listen.
const address = "127.0.18.2"

// world is an authority and those whom it made certificates for.
type world struct {
	signer *ca.Signer

	mu      sync.Mutex
	holders map[string]*tls.Certificate // guarded by mu: by identity
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key := ca.NewKey()
	root, err := ca.NewRoot("root", time.Hour, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &world{signer: root, holders: map[string]*tls.Certificate{}}
}

// identity reads "shop/web", of the trust domain cluster.local, or "other.example/ns/shop/sa/web".
func identity(t *testing.T, name string) spiffe.ID {
	t.Helper()
	if namespace, account, _ := strings.Cut(name, "/"); !strings.Contains(account, "/") {
		name = "cluster.local/ns/" + namespace + "/sa/" + account
	}
	id, err := spiffe.Parse("spiffe://" + name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// certificate is that of an identity, the same each time.
func (w *world) certificate(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.holders[name]; c != nil {
		return c
	}
	c := w.issue(t, identity(t, name))
	w.holders[name] = c
	return c
}

func (w *world) issue(t *testing.T, id spiffe.ID) *tls.Certificate {
	t.Helper()
	key := ca.NewKey()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{}}, key)
	if err != nil {
		t.Fatal(err)
	}
	req, err := ca.ParseRequest(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	name := peername.Of(nil, id.ServiceAccount, id.TrustDomain).DNS() // which no policy may match
	leaf, err := ca.Issue(w.signer, ca.Grant{ID: id, PeerName: name, Key: req.Key}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// digest is how revocations name a certificate.
func digest(c *tls.Certificate) string {
	sum := sha256.Sum256(c.Leaf.Raw)
	return hex.EncodeToString(sum[:])
}

// runEnvoy runs an Envoy until the test ends.
func runEnvoy(t *testing.T, b *bootstrapv3.Bootstrap, options ...string) {
	t.Helper()
	text, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	testenvoy.Start(t, text, append([]string{"--log-level", "warning"}, options...)...)
}

// greeting is what lineServer says before anything is asked.
const greeting = "welcome\n"

// lineServer sends a greeting to each client, and echoes each line.
func lineServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			all.Go(func() {
				defer conn.Close()
				if _, err := conn.Write([]byte(greeting)); err != nil {
					return
				}
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if _, err := conn.Write([]byte(line)); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // it was open
		all.Wait()
	})
	return l.Addr().String()
}
