package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// describe prints what runs where, and who everybody is.
func (m *mesh) describe(ctx context.Context) error {
	m.say("Running:")
	m.say("  %-12s xDS and certificate authority %s (TLS), metrics http://%s/metrics, configuration %s", "ashored",
		m.o.xds, m.o.metrics, m.config())
	for _, w := range workloads() {
		m.say("  %-12s Envoy http://%s -> application %s", w.name, m.at(w, portIngress), m.at(w, portApp))
	}
	m.say("  logs and process IDs are in %s", m.o.dir)
	m.say("Each workload joined with a one-time token and uses mutual TLS (ashorectl workload list):")
	out, code, err := m.ask(ctx, "ashorectl", "workload", "list")
	if err == nil && code != 0 {
		err = fmt.Errorf("ashorectl workload list ends with %d: %s", code, out)
	}
	if err == nil {
		m.show(out)
	}
	return err
}

// invite prints what to try.
func (m *mesh) invite() {
	ctl := m.tool("ashorectl")
	if m.o.dir != ".run" { // it is found by itself there
		ctl += " --socket " + m.socket()
	}
	m.say(`
Try: the frontend calls the backend 100 times, through its Envoy and the backend's
  curl '%[1]s'

Shift traffic: 5 to 20 instead of 80 to 20. Then repeat the call
  sed -i 's/weight: 80/weight: 5/' %[2]s

Make a mistake in the file, see the problem while traffic continues, and correct it
  sed -i 's/subset: v2/subsett: v2/' %[2]s
  %[3]s problems
  sed -i 's/subsett: v2/subset: v2/' %[2]s

Call a backend without a certificate: the connection is closed. Through the frontend, it receives the caller's identity
  curl http://%[6]s/
  curl '%[7]s'

Deny the frontend, repeat the call (403), see why, and allow it again
  cp %[8]s %[9]s
  %[3]s authz explain quickstart/frontend quickstart/backend --method GET --path /
  rm %[9]s/deny.yaml

Revoke the frontend's identity: it is refused, also on open connections. Then restore it
  %[3]s workload revoke quickstart/frontend --reason experiment
  %[10]s status --state %[11]s
  %[3]s workload restore quickstart/frontend --reason over

Kill the control plane. Traffic continues; ashored is restarted after %[4]v
  kill -9 $(cat %[5]s)

More: %[3]s status; %[3]s get virtualservice; %[3]s proxy-config all frontend.quickstart; %[3]s ca show; %[3]s audit tail
Ctrl-C stops everything and removes it; each run starts from the beginning.`,
		m.callURL(100), m.splitFile(), ctl, reviveAfter, filepath.Join(m.o.dir, "ashored.pid"), m.at(workloads()[1],
			portIngress), m.askURL(),
		filepath.Join(m.extras(), "deny.yaml"), m.config(), m.tool("ashore-agent"), m.home(workloads()[0]))
}
