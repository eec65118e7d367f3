package replicas

import "testing"

// A replica that is stopped while Consul has just gone ends, whatever it was about to write.
func TestStopWithoutConsul(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	x := w.write()
	for x.count() < 40 {
		w.sick(0, 0)
	}
	w.consul.Kill()
	for _, m := range w.meshes {
		m.Ashored.Stop() // fails when it does not end in time
	}
	x.end()
}
