package identity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry/kube"
)

const (
	// audience is for whom tokens have to be. Source: Istio, security.TokenAudiences.
	audience = "istio-ca"
	// requestTimeout is how long a request to an API server may take while somebody waits.
	requestTimeout = 5 * time.Second
	// accountPrefix begins the names of service accounts as users: "system:serviceaccount:shop:web".
	accountPrefix = "system:serviceaccount:"
)

// Reviewer has clusters review tokens of their service accounts. It implements ca.TokenReviewer.
// Safe for concurrent use.
type Reviewer struct {
	clusters []*kube.Cluster // immutable
	failures kube.Failures
}

// NewReviewer returns a Reviewer for these clusters, at least one.
func NewReviewer(clusters []*kube.Cluster) *Reviewer { return &Reviewer{clusters: clusters} }

// Review has a cluster review a token, which has to be for the audience istio-ca. The API server also
// checks that the Pod of a bound token exists. If there is one cluster, it is asked whatever the
// caller names.
func (r *Reviewer) Review(ctx context.Context, cluster, token string) (namespace, account string, refused, err error) {
	c, refused := r.choose(cluster)
	if refused != nil {
		return "", "", refused, nil
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review, err := c.Client.AuthenticationV1().TokenReviews().Create(bounded, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}}}, metav1.CreateOptions{})
	if ctx.Err() != nil { // the caller has disconnected: that is no failure of the cluster
		return "", "", nil, ctx.Err()
	}
	err = c.Explain(err, "create", "tokenreviews")
	r.failures.Note(c.Name, err)
	if err != nil {
		return "", "", nil, err
	}
	namespace, account, refused = accountOf(review.Status)
	if refused != nil {
		refused = fmt.Errorf("cluster %s: %w", c.Name, refused)
	}
	return namespace, account, refused, nil
}

// choose returns the cluster with an ID, or the only one. Errors: *ca.UnknownClusterError.
func (r *Reviewer) choose(id string) (*kube.Cluster, error) {
	var ids []string
	for _, c := range r.clusters {
		if c.Options.Cluster == id || len(r.clusters) == 1 {
			return c, nil
		}
		ids = append(ids, c.Options.Cluster)
	}
	return nil, &ca.UnknownClusterError{Cluster: id, Known: ids}
}

// accountOf returns the service account that a review proves. Errors: it proves none.
func accountOf(s authenticationv1.TokenReviewStatus) (namespace, name string, err error) {
	account, ok := strings.CutPrefix(s.User.Username, accountPrefix)
	namespace, name, two := strings.Cut(account, ":")
	switch {
	case !s.Authenticated || s.Error != "":
		return "", "", fmt.Errorf("it does not accept the token: %.300s", cmp.Or(s.Error, "it gives no reason"))
	case !slices.Contains(s.Audiences, audience):
		return "", "", fmt.Errorf("the token is for %q, want the audience %s", s.Audiences, audience)
	case !ok || !two || namespace == "" || name == "":
		return "", "", fmt.Errorf("the token is of the user %.200q, which is no service account", s.User.Username)
	}
	return namespace, name, nil
}

// Problems returns why clusters cannot review tokens.
func (r *Reviewer) Problems() []feed.Problem {
	return r.failures.Problems("setting attestors.kubernetes", "; tokens of this cluster prove no identity")
}
