package kube

import (
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Explain returns what a failed request to the API server means for an operator. verbs and resource
// are the rights that the request needs: "list and watch", "endpointslices".
func (c *Cluster) Explain(err error, verbs, resource string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cluster %s does not allow ashored to %s %s: give its account a role with that right and a "+
			"binding, as in examples/kubernetes/roles.yaml and bindings.yaml: %w", c.Name, verbs, resource, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("cluster %s does not accept the credentials of ashored, so it cannot %s %s: "+
			"renew the token or certificate in its kubeconfig, and reload ashored: %w", c.Name, verbs, resource, err)
	}
	if request := (*url.Error)(nil); errors.As(err, &request) { // no answer
		return fmt.Errorf("cluster %s cannot be reached: %w", c.Name, request.Err)
	}
	return fmt.Errorf("cluster %s: %s %s: %w", c.Name, verbs, resource, err)
}
