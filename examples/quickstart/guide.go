package main

import "path/filepath"

// describe prints what runs where.
func (m *mesh) describe() {
	m.say("What runs:")
	m.say("  %-12s xDS %s, metrics http://%s/metrics, configuration %s", "ashored", m.o.xds, m.o.metrics, m.config())
	for _, w := range workloads() {
		m.say("  %-12s Envoy http://%s -> application %s; Envoy's admin interface http://%s", w.name, m.at(w, portIngress), m.at(w, portApp), m.at(w, "15000"))
	}
	m.say("  logs and process IDs are in %s", m.o.dir)
}

// invite prints what to try.
func (m *mesh) invite() {
	ctl := filepath.Join(m.o.programs, "ashorectl")
	m.say(`
Try: the frontend calls the backend 100 times, through its Envoy and the backend's
  curl '%s'

Shift traffic: 5 to 20 instead of 80 to 20. Then ask again
  sed -i 's/weight: 80/weight: 5/' %s

Break the file, and read what is wrong while traffic goes on; then repair it
  sed -i 's/subset: v2/subsett: v2/' %[2]s
  %[3]s problems
  sed -i 's/subsett: v2/subset: v2/' %[2]s

Kill the control plane. Traffic goes on; it is started again after %[4]v
  kill -9 $(cat %[5]s)

More: %[3]s status; %[3]s get virtualservice; %[3]s dump frontend.quickstart
Ctrl-C ends everything.`,
		m.callURL(100), m.splitFile(), ctl, reviveAfter, filepath.Join(m.o.dir, "ashored.pid"))
}
