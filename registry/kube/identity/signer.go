package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/ashore-mesh/ashore/registry/kube"
)

// signTimeout is how long a signer may take. Agents wait 15s for a certificate.
const signTimeout = 12 * time.Second

// Signer has a signer of a cluster sign certificates. It implements ca.ExternalSigner. Safe for
// concurrent use.
type Signer struct {
	cluster *kube.Cluster // immutable
	name    string        // immutable
}

// NewSigner returns a Signer for the signer of that name, such as example.com/mesh.
func NewSigner(c *kube.Cluster, name string) *Signer { return &Signer{c, name} }

// Sign creates a CertificateSigningRequest for a request in PEM, approves it, waits for the
// certificate, and deletes it. It returns the chain in PEM, the leaf first. The caller checks what
// was signed. Errors: why there is no certificate.
func (s *Signer) Sign(ctx context.Context, request []byte, validity time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, signTimeout,
		fmt.Errorf("the signer %s of cluster %s did not sign within %s", s.name, s.cluster.Name, signTimeout))
	defer cancel()
	chain, err := s.sign(ctx, request, validity)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return chain, err
}

func (s *Signer) sign(ctx context.Context, request []byte, validity time.Duration) ([]byte, error) {
	requests := s.cluster.Client.CertificatesV1().CertificateSigningRequests()
	seconds := int32(validity / time.Second)
	made, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "ashore-workload-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: s.name,
			ExpirationSeconds: &seconds,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
				certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth}}}, metav1.CreateOptions{})
	if err != nil {
		return nil, s.cluster.Explain(err, "create", "certificatesigningrequests")
	}
	defer s.remove(context.WithoutCancel(ctx), requests, made.Name)
	made.Status.Conditions = append(made.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Authenticated",
		Message: "ashored authenticated the workload"})
	approved, err := requests.UpdateApproval(ctx, made.Name, made, metav1.UpdateOptions{})
	if err != nil {
		return nil, s.cluster.Explain(err, "approve", "certificatesigningrequests of the signer "+s.name)
	}
	return s.await(ctx, requests, approved)
}

// await waits until a request has a certificate, or will get none.
func (s *Signer) await(ctx context.Context, requests v1.CertificateSigningRequestInterface,
	last *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	w, err := requests.Watch(ctx, metav1.ListOptions{ResourceVersion: last.ResourceVersion,
		FieldSelector: "metadata.name=" + last.Name})
	if err != nil {
		return nil, s.cluster.Explain(err, "watch", "certificatesigningrequests")
	}
	defer w.Stop()
	for {
		if len(last.Status.Certificate) > 0 {
			return last.Status.Certificate, nil
		}
		for _, c := range last.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return nil, fmt.Errorf("the signer %s of cluster %s refuses: %s: %s", s.name, s.cluster.Name, c.Reason, c.Message)
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e := <-w.ResultChan():
			next, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok {
				return nil, errors.New("the watch of the request for a certificate broke off")
			}
			last = next
		}
	}
}

// remove deletes a request. One that stays is deleted by Kubernetes within a day.
func (s *Signer) remove(ctx context.Context, requests v1.CertificateSigningRequestInterface, name string) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := requests.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		s.cluster.Log.Warn("a request for a certificate stays in the cluster",
			"name", name, "error", s.cluster.Explain(err, "delete", "certificatesigningrequests"))
	}
}
