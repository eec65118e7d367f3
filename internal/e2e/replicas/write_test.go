package replicas

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// writers apply objects at all replicas at once, and remember which were acknowledged.
type writers struct {
	stop chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex
	acked []string // guarded by mu
	lost  int      // guarded by mu: those that were not acknowledged
}

// write starts two writers at each replica; each applies one object after the other.
func (w *world) write() *writers {
	x := &writers{stop: make(chan struct{})}
	for i, m := range w.meshes {
		client := admin.NewClient(m.Socket())
		for n := range 2 {
			x.done.Go(func() { x.run(client, fmt.Sprintf("w%d-%d", i, n)) })
		}
	}
	w.t.Cleanup(x.end)
	return x
}

func (x *writers) run(client *admin.Client, name string) {
	for n := 0; ; n++ {
		select {
		case <-x.stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		object := fmt.Sprintf("%s-%d", name, n)
		piece := admin.Piece{File: object + ".yaml", Data: fmt.Appendf(nil, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: written}
spec: {hosts: [%s.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}
`, object, object)}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := admin.Send(ctx, client, admin.CallWrite,
			admin.StoreWrite{Action: admin.Apply, Pieces: []admin.Piece{piece}})
		cancel()
		x.note(object, err)
	}
}

func (x *writers) note(object string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.lost++
		return
	}
	x.acked = append(x.acked, object)
}

// count is how many were acknowledged.
func (x *writers) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.acked)
}

func (x *writers) end() {
	select {
	case <-x.stop:
	default:
		close(x.stop)
	}
	x.done.Wait()
}

// written are the objects that a replica has in the store.
func written(m *harness.Mesh) ([]string, error) {
	list, err := admin.Send(context.Background(), m.Admin, admin.CallStored, admin.ObjectQuery{Kind: "ServiceEntry", Namespace: "written"})
	var out []string
	for _, o := range list {
		out = append(out, o.Metadata.Name)
	}
	return out, err
}

// All replicas have what one has acknowledged, also if one is killed or disconnected during writes;
// and they have the same.
func TestWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, "")
	x := w.write()
	more := func() {
		t.Helper()
		want := x.count() + 40
		harness.Eventually(t, "more writes", func() error {
			if have := x.count(); have < want {
				return fmt.Errorf("%d were acknowledged, want %d", have, want)
			}
			return nil
		})
	}
	more()
	for i := range w.meshes {
		w.meshes[i].Ashored.Kill()
		more()
		w.meshes[i].Start()
		w.cut((i + 1) % 3)
		more()
		w.mend((i + 1) % 3)
	}
	w.consul.Kill()
	time.Sleep(2 * time.Second)
	w.consul.Start()
	more()
	x.end()
	var all []string
	harness.Eventually(t, "all replicas have the same", func() error {
		all = nil
		for i, m := range w.meshes {
			have, err := written(m)
			if err != nil {
				return err
			}
			if i > 0 && !slices.Equal(have, all) {
				return fmt.Errorf("replica %d has %d objects, the one before %d", i, len(have), len(all))
			}
			all = have
		}
		return nil
	})
	var missing []string
	for _, name := range x.acked {
		if !slices.Contains(all, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d of %d writes were acknowledged and are gone: %s", len(missing), len(x.acked),
			strings.Join(missing, " "))
	}
	t.Logf("%d writes were acknowledged, %d were not; the store has %d", len(x.acked), x.lost, len(all))
}
