package kube

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is the name of the Lease of the leader, in Options.Namespace.
const lease = "ashored-leader"

// Lead runs f while this replica is the leader in the cluster, again and again until ctx ends. The
// context of f ends when another replica may lead. Another replica takes over within 15 s after this
// one died, and at once after it stopped. report receives why there can be no leader, and nil once
// there is one.
func (c *Cluster) Lead(ctx context.Context, replica string, report func(error), f func(context.Context)) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: lease, Namespace: c.Options.Namespace},
		Client:     c.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: replica},
	}
	for ctx.Err() == nil {
		l := &reportingLock{LeaseLock: lock, c: c, report: report}
		ended := make(chan struct{})
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:          l,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { defer close(ended); f(ctx) },
				OnStoppedLeading: func() {},
			},
		})
		if l.acquired.Load() {
			<-ended // f runs in a goroutine of the library
		}
	}
}

// reportingLock reports why the Lease cannot be written.
type reportingLock struct {
	*resourcelock.LeaseLock
	c      *Cluster
	report func(error)

	acquired atomic.Bool // this replica led
}

func (l *reportingLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.written(l.LeaseLock.Create(ctx, r), "create")
}

func (l *reportingLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.written(l.LeaseLock.Update(ctx, r), "update")
}

func (l *reportingLock) written(err error, verb string) error {
	if err == nil {
		l.acquired.Store(true)
	}
	return l.reported(err, verb)
}

// Get is read by replicas that do not lead, too. That there is no Lease yet is no error.
func (l *reportingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.LeaseLock.Get(ctx)
	if !apierrors.IsNotFound(err) {
		_ = l.reported(err, "get")
	}
	return r, raw, err
}

func (l *reportingLock) reported(err error, verb string) error {
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another replica was faster
		l.report(l.c.Explain(err, verb, "leases in "+l.c.Options.Namespace))
	}
	return err
}
