package consul

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// redirect sends what applications call to the proxy's outbound port. The proxy's own traffic and
// that to loopback addresses stay.
const redirect = `
table inet ashore {
	chain output {
		type nat hook output priority -100;
		meta skgid %d accept
		ip daddr 127.0.0.0/8 accept
		meta l4proto tcp redirect to :15001
	}
}
`

// virtualIPs waits until all hosts have virtual addresses, and returns the first of each.
func virtualIPs(t *testing.T, m *harness.Mesh, hosts ...string) []string {
	t.Helper()
	out := make([]string, len(hosts))
	harness.Eventually(t, "virtual addresses", func() error {
		for i, host := range hosts {
			out[i] = ""
			services, err := admin.Send(context.Background(), m.Admin, admin.CallServices, admin.ServiceQuery{Host: host})
			for _, s := range services {
				if s.Allocated {
					out[i] = s.Addresses[0]
				}
			}
			if err != nil || out[i] == "" {
				return fmt.Errorf("%s has none: %w", host, err)
			}
		}
		return nil
	})
	return out
}

// Where connections are redirected, services of Consul are reached by the addresses of their
// instances, which Consul's DNS answers with: HTTP by host, all else by port. HTTP is also taken at
// virtual addresses, which stay the same after a restart and a registration. Needs root for network
// namespaces.
func TestRedirected(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	here, there := harness.Linked(t)
	here.Forward(a.Address, nil)
	there.TCPEcho(t, "db", there.IP+":7000")
	there.TCPEcho(t, "cache", there.IP+":7001")
	there.Backend(t, "web", there.IP+":8080")
	c.put("db-1", there.IP, 7000, "passing", said("ashore-port", "5432", "protocol", "tcp"))
	c.put("cache-1", there.IP, 7001, "passing", said("ashore-port", "6379", "protocol", "tcp"))
	c.put("web-1", there.IP, 8080, "passing")
	m := harness.New(t, nil, harness.In(here), harness.Sources(fmt.Sprintf("{name: dc1, kind: consul, address: %q}",
		"http://"+a.Address)))
	hosts := []string{"db.service.consul", "cache.service.consul", "web.service.consul"}
	ips := virtualIPs(t, m, hosts...)
	here.NFT(fmt.Sprintf(redirect, harness.ProxyGID))
	client := m.Proxy(harness.Workload{Name: "client", Redirected: here})

	byPort := func(what string) {
		t.Helper()
		for port, want := range map[string]string{"5432": "db", "6379": "cache"} {
			harness.Eventually(t, want+" "+what, func() error {
				return greets(here, net.JoinHostPort(there.IP, port),
					want)
			})
		}
	}
	byPort("by its port")
	call := harness.Request{Host: "web.service.consul:8080"}
	here.Client(t, net.JoinHostPort(ips[2], "8080")).Want(t, "HTTP by virtual address", call, harness.From("web"))
	here.Client(t, there.IP+":8080").Want(t, "HTTP by the address of an instance", call, harness.From("web"))
	for stat, least := range map[string]int{
		"cluster.outbound|5432||db.service.consul;.upstream_cx_total": 1, "cluster.outbound|6379||cache.service.consul;.upstream_cx_total": 1,
		"cluster.outbound|8080||web.service.consul;.upstream_rq_completed": 2,
	} {
		if got := client.Stat(stat); got < least {
			t.Errorf("%s is %d, want at least %d: the traffic went another way", stat, got, least)
		}
	}

	m.Ashored.Kill()
	c.put("late-1", there.IP, 7002, "passing", said("ashore-port", "5432", "protocol", "tcp"))
	m.Start()
	if after := virtualIPs(t, m, append(hosts, "late.service.consul")...); !slices.Equal(after[:len(ips)], ips) {
		t.Errorf("addresses were %v and are %v", ips, after)
	}
	byPort("after a restart")
}

// greets connects from within a network namespace and reads the greeting of a TCPEcho.
func greets(ns *harness.Namespace, address, name string) error {
	c, err := ns.Dial(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if got, err := bufio.NewReader(c).ReadString('\n'); err != nil || got != name+"\n" {
		return fmt.Errorf("greeting %q, %v, want %q", got, err, name)
	}
	return nil
}
