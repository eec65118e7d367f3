package replicas

import (
	"context"
	"fmt"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// authority waits until that of each replica is as it should be.
func (w *world) authority(what string, ok func(admin.Authority) bool) {
	w.t.Helper()
	for i, m := range w.meshes {
		harness.Eventually(w.t, fmt.Sprintf("replica %d: %s", i, what), func() error {
			a, err := admin.Send(context.Background(), m.Admin, admin.CallAuthority, admin.None{})
			if err == nil && !ok(a) {
				err = fmt.Errorf("it is %+v", a)
			}
			return err
		})
	}
}

// The root is changed while replicas are killed and started again; all sign with the new one, with
// intermediates of their own, and no call fails.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	w.serve(0, "web-1")
	w.serve(1, "web-2")
	a := w.join(1, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.agree(3)
	clean := steady(t, a)
	before, err := admin.Send(t.Context(), w.meshes[0].Admin, admin.CallAuthority, admin.None{})
	if err != nil {
		t.Fatal(err)
	}
	w.authority("it knows the other", func(a admin.Authority) bool {
		return len(a.Replicas) == 1
	})
	if _, err := admin.Send(t.Context(), w.meshes[1].Admin, admin.CallRotate, admin.RotateRequest{Reason: "test"}); err == nil {
		t.Error("a rotation was begun where the root's key is not")
	}

	w.meshes[1].Ashored.Kill()
	if _, err := admin.Send(t.Context(), w.meshes[0].Admin, admin.CallRotate, admin.RotateRequest{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	w.meshes[1].Start()
	w.authority("the rotation is in progress", func(a admin.Authority) bool { return !a.Rotation.Since.IsZero() })
	w.meshes[0].Ashored.Kill()
	w.meshes[0].Start()
	w.authority("the new root signs", func(a admin.Authority) bool {
		return a.Signer.Root != before.Signer.Root && len(a.Roots) == 2 && len(a.Problems) == 0
	})
	w.serve(1, "web-3") // by the replica that has no root's key
	a.Client(servicePort).Want(t, "who joined below the new root", call(), harness.From("web-3"))
	clean()
}
