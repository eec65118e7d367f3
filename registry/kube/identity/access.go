package identity

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// answerLife is how long an answer about a service account counts.
const answerLife = time.Minute

// Access finds out which service accounts may have the Secrets of their namespaces. Safe for concurrent
// use.
type Access struct {
	cluster  *kube.Cluster // immutable
	now      func() time.Time
	failures kube.Failures

	asking singleflight.Group // by user

	mu      sync.Mutex
	answers map[string]answer // guarded by mu; by user
}

type answer struct {
	allowed bool
	until   time.Time
}

// NewAccess returns an Access that asks a cluster.
func NewAccess(c *kube.Cluster) *Access {
	return &Access{cluster: c, now: time.Now, answers: map[string]answer{}}
}

// MayRead reports whether the cluster allows the service account of an identity to list the Secrets
// of its namespace. The account need not exist there. Errors: the cluster gives no answer.
// Source: Istio, CredentialsController.Authorize.
func (a *Access) MayRead(ctx context.Context, id spiffe.ID) (bool, error) {
	user := accountPrefix + id.Namespace + ":" + id.ServiceAccount
	if known, ok := a.known(user); ok {
		return known, nil
	}
	// After a restart many gateways of one account connect at once: one request serves all.
	result := a.asking.DoChan(user, func() (any, error) { return a.ask(user, id.Namespace) })
	select {
	case r := <-result:
		allowed, _ := r.Val.(bool)
		return allowed, r.Err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// known returns the answer about a user that still counts.
func (a *Access) known(user string) (allowed, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x, ok := a.answers[user]
	return x.allowed, ok && a.now().Before(x.until)
}

// ask asks the cluster, and keeps its answer.
func (a *Access) ask(user, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	review, err := a.cluster.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "secrets"}}},
		metav1.CreateOptions{})
	err = a.cluster.Explain(err, "create", "subjectaccessreviews")
	a.failures.Note(a.cluster.Name, err)
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	maps.DeleteFunc(a.answers, func(_ string, x answer) bool { return !now.Before(x.until) })
	a.answers[user] = answer{review.Status.Allowed, now.Add(answerLife)}
	return review.Status.Allowed, nil
}

// Problems returns why the cluster gives no answers, and which gateways' accounts may not list
// Secrets.
func (a *Access) Problems() []feed.Problem {
	out := a.failures.Problems("setting secrets.kubernetes", "; gateways that connect now get no Secrets of the cluster")
	a.mu.Lock()
	defer a.mu.Unlock()
	for user, x := range a.answers {
		if !x.allowed {
			out = append(out, feed.Problem{Severity: feed.Warning, Source: "setting secrets.kubernetes", Text: fmt.Sprintf(
				"gateways of %s get no Secrets: cluster %s does not allow that account to list secrets in its namespace; "+
					"bind it a Role, and have the gateways connect again after a minute", user, a.cluster.Name)})
		}
	}
	feed.SortProblems(out)
	return out
}
