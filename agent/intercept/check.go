package intercept

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/miekg/dns"

	"github.com/ashore-mesh/ashore/internal/machine"
)

// Checks find out whether a machine works with the rules.
type Checks struct {
	// ControlPlane are host:port of the replicas. One of them has to answer.
	ControlPlane []string
	// Plaintext says that they do not speak TLS. Then it is enough that one accepts the connection.
	Plaintext bool
	// Ready is the URL of the agent's readiness. Empty: not checked.
	Ready string

	dnsWorked bool // a DNS server answered before the rules were installed
}

// checkTimeout is the maximum time of each check.
const checkTimeout = 5 * time.Second

// run does the checks of a machine with rules once. The error names those that failed.
func (k Checks) run(ctx context.Context, c Config) error {
	var failed []error
	check := func(name string, err error) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	check("control plane", k.controlPlane(ctx))
	if k.Ready != "" {
		check("agent", get(ctx, k.Ready))
	}
	if c.DNSPort != 0 {
		rcode, udp := askDNS(ctx, "udp", nameServer())
		_, tcp := askDNS(ctx, "tcp", nameServer())
		check("dns", errors.Join(udp, tcp))
		if k.dnsWorked && udp == nil && rcode == dns.RcodeServerFailure {
			check("outside", errors.New("the agent does not reach the DNS servers of this machine (setting dns.servers, "+
				"else /etc/resolv.conf)"))
		}
	}
	return errors.Join(failed...)
}

func (k Checks) controlPlane(ctx context.Context) error {
	var all error
	for _, address := range k.ControlPlane {
		err := k.reach(ctx, address)
		if err == nil {
			return nil
		}
		all = errors.Join(all, fmt.Errorf("%s does not answer: %w", address, err))
	}
	return all
}

// reach requires an answer, because Envoy accepts any connection. It does not verify the server,
// and a refusal of a client without a certificate is an answer.
func (k Checks) reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if k.Plaintext {
		return nil
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}} //nolint:gosec // see above
	secure := tls.Client(conn, config)
	err = secure.HandshakeContext(ctx)
	if _, refused := errors.AsType[tls.AlertError](err); refused {
		return nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return nil
	}
	return err
}

// sshPorts returns the ports at which sshd listens for other machines. Under a strict policy Envoy
// would refuse their clients. It runs as root: another user's program may have the same name.
func sshPorts() (ports []string, err error) {
	all, err := machine.Listeners(false)
	for _, l := range all {
		if l.Name != "sshd" || l.Address.Addr().IsLoopback() {
			continue
		}
		is, err := credentialsOf(l.PID)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has ended
		case err != nil:
			return nil, err
		case is.uid == 0:
			ports = append(ports, strconv.Itoa(int(l.Address.Port())))
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports), err
}

// get requires an answer below 500: Envoy answers 503 if it cannot reach the agent.
func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 500))
	if resp.StatusCode >= 500 {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, bytes.TrimSpace(text))
	}
	return err
}

// nameServer is the server that applications ask.
func nameServer() string {
	if c, err := dns.ClientConfigFromFile("/etc/resolv.conf"); err == nil && len(c.Servers) > 0 {
		return c.Servers[0]
	}
	return "127.0.0.1" // as resolvers do without the file
}

// askDNS asks a server for the root and returns the code of its answer.
func askDNS(ctx context.Context, network, server string) (rcode int, err error) {
	client := dns.Client{Net: network, Timeout: checkTimeout}
	query := new(dns.Msg).SetQuestion(".", dns.TypeNS)
	r, _, err := client.ExchangeContext(ctx, query, net.JoinHostPort(server, "53"))
	if err != nil {
		return 0, fmt.Errorf("no answer by %s: %w: does the agent run, with ports.dns open?", network, err)
	}
	return r.Rcode, nil
}
