package hostile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

const registrationsMesh = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {template: {serviceAccount: web}}
`

// One workload has at most 16 registrations, however often it renews its certificate, and keeps no
// other one of its group from registering.
func TestManyRegistrations(t *testing.T) {
	t.Parallel()
	subnet := harness.FreeSubnet(t)
	m := harness.New(t, map[string]string{"web.yaml": registrationsMesh}, harness.Secure(""), harness.On(subnet))
	attacker, other := m.Enrol(harness.Workload{Name: "attacker",
		Group: "shop/web"}), m.Enrol(harness.Workload{Name: "other", Group: "shop/web"})
	own, registered := attacker.Certificate, 0
	for i := range 40 {
		if i == 20 {
			own = renewRegistered(t, m, own)
		}
		t.Run(fmt.Sprint("address ", i), func(t *testing.T) { // its connection ends with it, or there would be too many
			switch err := registerAs(t, m, own, "web", fmt.Sprint(subnet, 100+i), ""); status.Code(err) {
			case codes.OK:
				registered++
			case codes.ResourceExhausted:
			default:
				t.Fatal(err)
			}
		})
	}
	if registered != 16 {
		t.Errorf("one workload with two certificates has %d registrations, want 16", registered)
	}
	if err := registerAs(t, m, other.Certificate, "web", other.IP, ""); err != nil {
		t.Errorf("another workload: %v", err)
	}
}

// renewRegistered returns another certificate of a workload, with another key.
func renewRegistered(t *testing.T, m *harness.Mesh, own tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own},
		MinVersion: tls.VersionTLS13}
	conn, err := grpc.NewClient(m.TLS(), grpc.WithTransportCredentials(credentials.NewTLS(tlsConfig)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(t.Context(),
		&securityv1.IstioCertificateRequest{
			Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
		})
	if err != nil {
		t.Fatal(err)
	}
	renewed := tls.Certificate{PrivateKey: key}
	chain := answer.GetCertChain()
	for _, text := range chain[:len(chain)-1] {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			renewed.Certificate = append(renewed.Certificate, block.Bytes)
		}
	}
	return renewed
}
