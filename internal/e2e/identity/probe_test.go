package identity

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// probePort is where an application says how it is.
const probePort = 18081

// application says how it is: each path by itself.
type application struct {
	mu   sync.Mutex
	well map[string]bool // guarded by mu: by path
}

// healthAt starts one at an address; it ends with the test.
func healthAt(t *testing.T, ip string) *application {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, probePort))
	if err != nil {
		t.Fatal(err)
	}
	a := &application{well: map[string]bool{}}
	harness.ServeHTTP(t, l, a)
	return a
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.well[r.URL.Path] {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// set says how it is by a path.
func (a *application) set(path string, well bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.well[path] = well
}

// probedBy is the service web whose group has a probe, "" for none.
func probedBy(probe string) string {
	if probe != "" {
		probe = fmt.Sprintf("\n  probe: {%s, periodSeconds: 1, failureThreshold: 2}", probe)
	}
	return strings.Replace(service("web"), "template: {serviceAccount: web}", "template: {serviceAccount: web}"+probe,
		1)
}

// get is a probe of a path.
func get(path string) string { return fmt.Sprintf("httpGet: {path: %s, port: %d}", path, probePort) }

// refuses waits until no endpoint answers a client's requests to web.
func refuses(t *testing.T, c *harness.Client, what string) {
	t.Helper()
	c.Want(t, what, call(), harness.Status(http.StatusServiceUnavailable))
}

// unwell waits until ashorectl shows that a workload is unhealthy, and why.
func unwell(t *testing.T, m *harness.Mesh, name, why string) {
	t.Helper()
	harness.Eventually(t, "the list of workloads tells of "+name, func() error {
		list, err := admin.Send(context.Background(), m.Admin, admin.CallWorkloads, admin.None{})
		if err != nil {
			return err
		}
		for _, w := range list.Workloads {
			if w.Name == name && w.Health != nil && !w.Health.Healthy && strings.Contains(w.Health.Reason, why) {
				return nil
			}
		}
		return fmt.Errorf("it tells %+v", list.Workloads)
	})
}

// The probe of a WorkloadGroup decides who is an endpoint: at once, after an edit, after a restart
// without the control plane, and not any more when it is removed. One that a workload may not run
// changes nothing, and is reported.
func TestGroupProbe(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": probedBy(get("/a")), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	s := applications(t, m, "web-1")
	app := healthAt(t, s.ip())
	s.Proxy = m.Join(harness.Workload{Name: "web-1", Group: "shop/web", IP: s.ip()})
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(httpPort)
	s.WantLine("registration", "bad shop/web at ", "/a answers 503", "probed as its group says")
	unwell(t, m, "shop/web-1", "/a answers 503")
	refuses(t, client, "an application that was never well")
	d, err := admin.Send(context.Background(), m.Admin, admin.CallDump, admin.DumpRequest{Proxy: "web-1.shop", Type: "probe"})
	if err != nil || len(d.Types) != 1 || len(d.Types[0].Resources) != 1 ||
		!strings.Contains(string(d.Types[0].Resources[0].Body), `"/a"`) {
		t.Errorf("a dump of the probe: %+v, %v", d, err)
	}
	app.set("/a", true)
	answers(t, client, "web-1")
	app.set("/a", false)
	refuses(t, client, "an application that is not well any more")

	app.set("/b", true)
	m.Write("web.yaml", probedBy(get("/b")))
	answers(t, client, "web-1")
	s.WantLine("registration", "ok ", "healthy; probed as its group says, by GET http://"+s.ip(), "/b")

	m.Ashored.Kill()
	app.set("/b", false)
	s.Stop()
	s.Run()
	s.WantLine("registration", "bad ", "/b answers 503")
	app.set("/b", true)
	s.WantLine("registration", "warn ", "not reported: no control plane is connected")
	m.Start()
	answers(t, client, "web-1")

	m.Write("web.yaml", probedBy("exec: {command: [id]}"))
	s.WantLine("registration", "warn ", "healthy by the previous probe", "it runs a command", "/b")
	harness.Eventually(t, "the control plane tells who does not take the probe", func() error {
		st, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
		if err != nil {
			return err
		}
		for _, p := range st.Proxies {
			for _, ty := range p.Types {
				if ty.Type == "probe" && len(ty.Rejected) == 1 && strings.Contains(ty.Rejected[0].Error,
					"probe.allowGroupExec") {
					return nil
				}
			}
		}
		return fmt.Errorf("it tells %+v", st.Proxies)
	})
	answers(t, client, "web-1")
	app.set("/b", false)
	refuses(t, client, "the probe before still decides")

	m.Write("web.yaml", probedBy(""))
	answers(t, client, "web-1")
	s.WantLine("registration", "ok ", "healthy; ports 8080, 9000 checked")

	m.Remove("web.yaml") // the group with all that names it
	s.WantLine("registration", "ok ")
	app.set("/c", true)
	m.Write("web.yaml", probedBy(get("/c")))
	answers(t, client, "web-1")
	s.WantLine("registration", "ok ", "/c")
	app.set("/c", false)
	refuses(t, client, "a group that came back probes")
}

// A workload whose group has a probe that its settings do not allow is no endpoint and says why,
// here and to the operator; with the setting it is one.
func TestGroupProbeNotAllowed(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": probedBy("exec: {command: ['true']}"), "a.yaml": group("a"),
		"mode.yaml": mode("STRICT")}, harness.Secure(""))
	s := serve(t, m, "web", "web-1")
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(httpPort)
	const setting = "probe.allowGroupExec"
	s.WantLine("registration", "bad ",
		"not among the endpoints: the probe of the WorkloadGroup is not used: it runs a command")
	unwell(t, m, "shop/web-1", setting)
	refuses(t, client, "a workload whose group's probe is refused")
	if r, err := s.Report(); err != nil || !strings.Contains(r.Line("registration"), setting) || r.Well {
		t.Errorf("registration: %q, well %v, error %v; want %s in it", r.Line("registration"), r.Well, err, setting)
	}
	if !strings.Contains(s.Log(), setting) {
		t.Errorf("the log says nothing of %s:\n%s", setting, s.Log())
	}
	s.Stop()
	s.Run("--set", "probe.allowGroupExec=true")
	answers(t, client, "web-1")
	s.WantLine("registration", "ok ", "by the command true")
}
