package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// nodes are the nodes of a cluster, each in a zone of its own.
var nodes = []string{"one", "two"}

// kubelet runs the Pods of a cluster on all nodes, and is their scheduler. Each Pod is a network
// namespace on the bridge of a hub, with a backend that answers with the name of the Pod at its first
// container port.
type kubelet struct {
	t      *testing.T
	client kubernetes.Interface
	hub    *harness.Namespace

	mu     sync.Mutex
	pods   map[types.UID]*pod // guarded by mu
	paused bool               // guarded by mu
}

// pod is a running Pod.
type pod struct {
	name    string // "shop/web-1"
	ns      *harness.Namespace
	backend *harness.Backend // nil: the test runs the containers
	ready   bool             // guarded by kubelet.mu
}

// period is how often a kubelet reads the Pods.
const period = 100 * time.Millisecond

// startKubelet makes the nodes, and runs Pods until t ends.
func startKubelet(t *testing.T, client kubernetes.Interface, hub *harness.Namespace) *kubelet {
	t.Helper()
	k := &kubelet{t: t, client: client, hub: hub, pods: map[types.UID]*pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for turn := 0; ctx.Err() == nil; turn++ {
			list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			if err == nil && !k.isPaused() { // an error is an outage
				for i := range list.Items {
					k.care(ctx, &list.Items[i], nodes[turn%len(nodes)])
				}
				k.forget(list.Items)
				if turn%50 == 0 {
					k.register(ctx)
				}
			}
			select {
			case <-time.After(period):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return k
}

// register makes the nodes that do not exist.
func (k *kubelet) register(ctx context.Context) {
	for _, name := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelTopologyRegion: "region", corev1.LabelTopologyZone: "zone-" + name}}}
		_, _ = k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}) // or it exists
	}
}

// care does the next step for a Pod. Errors are conflicts and outages: the next turn tries again.
func (k *kubelet) care(ctx context.Context, p *corev1.Pod, node string) {
	pods := k.client.CoreV1().Pods(p.Namespace)
	switch running := k.running(p.UID); {
	case p.DeletionTimestamp != nil && time.Now().Before(p.DeletionTimestamp.Time): // it ends gracefully
	case p.DeletionTimestamp != nil:
		k.stop(p.UID)
		now := int64(0)
		_ = pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}})
	case p.Spec.NodeName == "":
		_ = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
			Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	case running == nil:
		k.run(p)
	default:
		if k.report(p, running) {
			_, _ = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
		}
	}
}

// run starts the process of a Pod.
func (k *kubelet) run(p *corev1.Pod) {
	port := int32(80)
	for _, c := range p.Spec.Containers {
		for _, cp := range c.Ports {
			port = cp.ContainerPort
		}
	}
	r := &pod{name: p.Namespace + "/" + p.Name, ns: k.hub.Attach(), ready: true}
	if !strings.HasPrefix(p.Spec.Containers[0].Image, imagePrefix) {
		r.backend = r.ns.Backend(k.t, p.Name, fmt.Sprintf("0.0.0.0:%d", port))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[p.UID] = r
}

// report writes how a Pod is into its status, and returns whether that changed.
func (k *kubelet) report(p *corev1.Pod, r *pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	ready := corev1.ConditionFalse
	if r.ready {
		ready = corev1.ConditionTrue
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == ready {
			return false
		}
	}
	now := metav1.Now()
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &now
	p.Status.HostIP, p.Status.HostIPs = k.hub.IP, []corev1.HostIP{{IP: k.hub.IP}}
	p.Status.PodIP, p.Status.PodIPs = r.ns.IP, []corev1.PodIP{{IP: r.ns.IP}}
	p.Status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
		if kind == corev1.ContainersReady || kind == corev1.PodReady {
			c.Status = ready
		}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	return true
}

// running returns a running Pod; nil: it does not run.
func (k *kubelet) running(uid types.UID) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[uid]
}

// stop ends the process of a Pod and its network.
func (k *kubelet) stop(uid types.UID) {
	k.mu.Lock()
	r := k.pods[uid]
	delete(k.pods, uid)
	k.mu.Unlock()
	if r == nil {
		return
	}
	if r.backend != nil {
		if err := r.backend.Drain(); err != nil {
			k.t.Errorf("end %s: %v", r.name, err)
		}
	}
	r.ns.Delete()
}

// forget ends the Pods that do not exist any more.
func (k *kubelet) forget(list []corev1.Pod) {
	exists := map[types.UID]bool{}
	for i := range list {
		exists[list[i].UID] = true
	}
	k.mu.Lock()
	var ended []types.UID
	for uid := range k.pods {
		if !exists[uid] {
			ended = append(ended, uid)
		}
	}
	k.mu.Unlock()
	for _, uid := range ended {
		k.stop(uid)
	}
}

// pod waits until a Pod whose name begins with prefix runs, and returns it: "shop/web-".
func (k *kubelet) pod(prefix string) *pod {
	k.t.Helper()
	var found *pod
	harness.Eventually(k.t, "a Pod "+prefix, func() error {
		if all := k.all(prefix); len(all) > 0 {
			found = all[0]
			return nil
		}
		return fmt.Errorf("none runs")
	})
	return found
}

// all returns the running Pods whose name begins with prefix.
func (k *kubelet) all(prefix string) (out []*pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if len(p.name) >= len(prefix) && p.name[:len(prefix)] == prefix {
			out = append(out, p)
		}
	}
	return out
}

// pause makes the kubelet leave all Pods as they are, or resume.
func (k *kubelet) pause(paused bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused = paused
}

func (k *kubelet) isPaused() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.paused
}

// setReady makes the readiness probe of a Pod succeed or fail.
func (k *kubelet) setReady(p *pod, ready bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.ready = ready
}
