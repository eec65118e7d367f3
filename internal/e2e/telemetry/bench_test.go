package telemetry

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// noMetrics disables all metrics of the mesh.
const noMetrics = `
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: mesh, namespace: istio-system}
spec:
  metrics: [{providers: [{name: prometheus}], overrides: [{disabled: true}]}]
`

// What metrics cost Envoy: processor time of a request, at its client and at its server, beside the
// same Envoys without; and memory and scrape of a client of 1,000 services with four status codes.
func BenchmarkMetrics(b *testing.B) {
	const hosts = 1000
	files := map[string]string{"mesh.yaml": mesh, "telemetry.yaml": noMetrics}
	for i := range hosts {
		files["hosts.yaml"] += fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: host-%[1]d, namespace: shop}
spec:
  hosts: [host-%[1]d.test]
  resolution: STATIC
  endpoints: [{address: BACKEND}]
  ports: [{number: 8080, name: http, protocol: HTTP, targetPort: 18080}]
---`, i)
	}
	subnet := harness.FreeSubnet(b)
	ip := subnet + "77"
	files["hosts.yaml"] = strings.ReplaceAll(files["hosts.yaml"], "BACKEND", ip)
	m := harness.New(b, files, harness.On(subnet), harness.Secure(""))
	harness.NewBackend(b, "web", ip+":18080")
	briefly := []string{"--set", "envoy.drainTime=1s"}
	server := m.Join(harness.Workload{Name: "web-1", Group: "shop/web-vm", IP: ip, Flags: briefly})
	client := m.Join(harness.Workload{Name: "client-1", Group: "shop/client", Flags: briefly})
	call := func(host, status string) {
		client.Client(8080).Want(b, host, harness.Request{Host: host, Header: map[string]string{"x-status": status}},
			harness.Status(number(b, status)))
	}
	each := func() (memory int, text, sent int64) {
		c := client.Client(8080)
		for i := range hosts {
			for _, status := range []string{"200", "201", "404", "500"} {
				if _, err := c.Do(harness.Request{Host: fmt.Sprintf("host-%d.test", i),
					Header: map[string]string{"x-status": status}}); err != nil {
					b.Fatal(err)
				}
			}
		}
		text, sent = scrapeBytes(b, client)
		return residentMB(b, envoyOf(b, client)), text, sent
	}
	turn := func(on bool) {
		file := noMetrics
		if on {
			file = "# metrics are on\n"
		}
		m.Write("telemetry.yaml", file)
		switchedTo(b, client, on)
		switchedTo(b, server, on)
	}
	call("web.test", "200")
	cpu := map[bool]map[*harness.Proxy][]float64{true: {}, false: {}}
	for round := range 10 {
		on := round%2 == 1
		turn(on)
		before := map[*harness.Proxy]int{client: ticks(b, envoyOf(b, client)), server: ticks(b, envoyOf(b, server))}
		const requests = 20_000
		load(b, client, requests)
		for p, begin := range before {
			// a tick is 10 ms
			cpu[on][p] = append(cpu[on][p], float64(ticks(b, envoyOf(b, p))-begin)*10_000/requests)
		}
	}
	turn(false)
	memory, text, sent := each()
	turn(true)
	memoryOn, textOn, sentOn := each()
	for name, p := range map[string]*harness.Proxy{"client": client, "server": server} {
		on, off := slices.Min(cpu[true][p]), slices.Min(cpu[false][p])
		b.Logf("%s: %.0f us of a processor with metrics, %.0f us without: %.2f", name, on, off, on/off)
		b.ReportMetric(on/off, name+"-ratio")
	}
	b.ReportMetric(float64(memoryOn-memory), "MB-more")
	b.ReportMetric(float64(sentOn-sent)/1e6, "MB-sent-more")
	b.ReportMetric(float64(textOn-text)/1e6, "MB-text-more")
	b.Logf("%d services: %d MB, and %.1f MB of a scrape with metrics; %d MB and %.1f MB without", hosts, memoryOn,
		float64(sentOn)/1e6, memory, float64(sent)/1e6)
}

// switchedTo waits until the listeners of a proxy count, or not.
func switchedTo(b *testing.B, p *harness.Proxy, on bool) {
	b.Helper()
	harness.Eventually(b, "metrics change", func() error {
		if got := strings.Contains(p.ConfigDump(), "peer_workload"); got != on {
			return fmt.Errorf("metrics are on: %v", got)
		}
		return nil
	})
}

// load sends requests over a few connections.
func load(b *testing.B, p *harness.Proxy, requests int) {
	b.Helper()
	const workers = 4
	var done sync.WaitGroup
	for range workers {
		c := p.Client(8080)
		done.Go(func() {
			for range requests / workers {
				if a, err := c.Do(harness.Request{Host: "web.test"}); err != nil || a.Status != http.StatusOK {
					b.Errorf("got %d, error %v", a.Status, err)
					return
				}
			}
		})
	}
	done.Wait()
}

// envoyOf is the folder in /proc of a proxy's Envoy.
func envoyOf(b *testing.B, p *harness.Proxy) string {
	b.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	for _, list := range lists {
		if children, err := os.ReadFile(list); err == nil && len(children) > 0 {
			return "/proc/" + strings.Fields(string(children))[0]
		}
	}
	b.Fatalf("the agent %d has no Envoy", p.PID())
	return ""
}

// ticks is the processor time of a process.
func ticks(b *testing.B, proc string) int {
	b.Helper()
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	return number(b, fields[12]) + number(b, fields[13]) // utime and stime
}

// residentMB is the resident memory of a process.
func residentMB(b *testing.B, proc string) int {
	b.Helper()
	statm, err := os.ReadFile(proc + "/statm")
	if err != nil {
		b.Fatal(err)
	}
	return number(b, strings.Fields(string(statm))[1]) * os.Getpagesize() >> 20
}

// scrapeBytes is the size of a scrape, as text and as it is sent.
func scrapeBytes(b *testing.B, p *harness.Proxy) (text, sent int64) {
	b.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+p.IP+":15020/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	wire := &counter{r: resp.Body}
	z, err := gzip.NewReader(wire)
	if err == nil {
		text, err = io.Copy(io.Discard, z)
	}
	if err != nil {
		b.Fatal(err)
	}
	return text, wire.n
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func number(b *testing.B, text string) int {
	b.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
