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
	last    resolvers // guarded by mu
	problem string    // guarded by mu: why the files could not be read; empty: they were
}

// resolvers are the machine's DNS servers and search domains.
type resolvers struct{ servers, search []string }

// get returns the latest resolvers, and why they are out of date; empty: they are not.
func (c *resolvConf) get() (latest resolvers, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) < rereadAfter {
		return c.last, c.problem
	}
	latest, err := c.load()
	c.read = time.Now()
	if len(latest.servers) > 0 {
		c.last = latest
	}
	c.problem = ""
	if err != nil {
		c.problem = err.Error()
	}
	return c.last, c.problem
}

// load reads the files.
func (c *resolvConf) load() (resolvers, error) {
	main, err := dns.ClientConfigFromFile(c.path)
	if err != nil {
		return resolvers{servers: c.servers}, err
	}
	out := resolvers{search: main.Search, servers: c.servers}
	if len(out.servers) > 0 {
		return out, nil
	}
	if len(main.Servers) > 0 && !slices.ContainsFunc(main.Servers, isNotStub) {
		if main, err = dns.ClientConfigFromFile(c.resolved); err != nil {
			return resolvers{}, fmt.Errorf("%s names systemd-resolved, whose servers cannot be read: %w", c.path, err)
		}
	}
	for _, s := range main.Servers {
		at := net.JoinHostPort(s, main.Port)
		if own, err := netip.ParseAddrPort(at); err == nil && slices.Contains(c.own, own) {
			continue
		}
		out.servers = append(out.servers, at)
	}
	if len(out.servers) == 0 {
		return resolvers{}, errors.New(c.path + " names no DNS server beside this machine's own; set dns.servers")
	}
	return out, nil
}

// isNotStub reports whether a server is not systemd-resolved's stub.
// Source: systemd-resolved.service(8): 127.0.0.53 and 127.0.0.54.
func isNotStub(server string) bool { return server != "127.0.0.53" && server != "127.0.0.54" }
