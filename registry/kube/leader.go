package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is the name of the Lease of the leader.
const lease = "ashored-leader"

// Lead runs f while this replica is the leader in the cluster, again and again until ctx ends. The
// context of f ends when another replica may lead. Other replicas take over within 15 s after this
// one died, and at once after it stopped.
func (c *Cluster) Lead(ctx context.Context, replica string, f func(context.Context)) {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: lease, Namespace: c.Options.Namespace},
				Client:     c.Client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: replica},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: f, OnStoppedLeading: func() {}},
		})
	}
}
