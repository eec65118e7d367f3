package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// rereadAfter is how long the content of resolv.conf is cached.
const rereadAfter = time.Second

// resolvConf is the content of resolv.conf. Queries make it read the file again. If that fails, the
// previous content stays. Safe for concurrent use.
type resolvConf struct {
	// The following fields are set once.
	path     string           // /etc/resolv.conf
	resolved string           // file with the servers of systemd-resolved, in the same format
	servers  []string         // host:port, instead of those of the files; empty: those of the files
	own      []netip.AddrPort // where this agent answers; it must not ask itself

	mu      sync.Mutex
	read    time.Time // guarded by mu
	last    []string  // guarded by mu
	problem string    // guarded by mu: why the files could not be read; empty: they were
}

// get returns host:port of the machine's DNS servers, and why they are out of date; empty: they are
// not.
func (c *resolvConf) get() (servers []string, problem string) {
	if len(c.servers) > 0 {
		return c.servers, ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) < rereadAfter {
		return c.last, c.problem
	}
	servers, err := c.load()
	c.read, c.problem = time.Now(), ""
	if err != nil {
		c.problem = err.Error()
	} else {
		c.last = servers
	}
	return c.last, c.problem
}

// load reads the files.
func (c *resolvConf) load() (servers []string, err error) {
	conf, err := dns.ClientConfigFromFile(c.path)
	if err != nil {
		return nil, err
	}
	if len(conf.Servers) > 0 && !slices.ContainsFunc(conf.Servers, isNotStub) {
		if conf, err = dns.ClientConfigFromFile(c.resolved); err != nil {
			return nil, fmt.Errorf("%s names systemd-resolved, whose servers cannot be read: %w", c.path, err)
		}
	}
	for _, s := range conf.Servers {
		at := net.JoinHostPort(s, conf.Port)
		if own, err := netip.ParseAddrPort(at); err == nil && slices.Contains(c.own, own) {
			continue
		}
		servers = append(servers, at)
	}
	if len(servers) == 0 {
		return nil, errors.New(c.path + " names no DNS server beside this machine's own; set dns.servers")
	}
	return servers, nil
}

// isNotStub reports whether a server is not systemd-resolved's stub.
// Source: systemd-resolved.service(8): 127.0.0.53 and 127.0.0.54.
func isNotStub(server string) bool { return server != "127.0.0.53" && server != "127.0.0.54" }
