package intercept

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// StateFolder has the record of a confirmed installation. It belongs to root, because Boot installs
// the recorded rules.
const StateFolder = "/var/lib/ashore-intercept"

// recordFile is the record in it.
const recordFile = "confirmed.json"

// InstalledFile exists while confirmed rules are installed. Like the rules, it does not survive a
// reboot.
const InstalledFile = "/run/ashore-intercept/installed"

// Machine is where rules are installed. The zero value is this machine.
type Machine struct {
	// Folder has the record. Empty: StateFolder.
	Folder string
	// Installed is the path of the marker. Empty: InstalledFile.
	Installed string
	// Timeout is how long Install waits until all checks succeed. Zero: 30s.
	Timeout time.Duration
}

// Record is a confirmed installation.
type Record struct {
	Confirmed time.Time
	Config    Config
}

// Install replaces the rules and checks that the machine works with them. If the checks do not
// succeed in time, it removes the rules again, or restores those that were confirmed before. It
// does the same if ctx ends or a hangup arrives. It records confirmed rules for Boot.
func (m Machine) Install(ctx context.Context, c Config, checks Checks) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the rules may have cut off the terminal
	defer stop()
	c, err := prepare(ctx, c, checks.ControlPlane)
	if err == nil {
		err = preflight(c, true)
	}
	if err != nil {
		return fmt.Errorf("no rules were installed: %w", err)
	}
	before, err := m.Record()
	if err != nil {
		return err
	}
	rcode, err := askDNS(ctx, "udp", nameServer())
	checks.dnsWorked = err == nil && rcode != dns.RcodeServerFailure
	if err := apply(context.WithoutCancel(ctx), c); err != nil {
		return fmt.Errorf("no rules were installed: %w", err)
	}
	if err = m.confirm(ctx, c, checks); err == nil {
		err = errors.Join(m.mark(), m.write(Record{time.Now(), c}))
	}
	if err == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if before == nil {
		return undone(err, "removed again", m.Delete(ctx))
	}
	return undone(err, "replaced by those that were confirmed before", apply(ctx, before.Config))
}

// Print returns the rules that Install would install.
func Print(ctx context.Context, c Config, checks Checks) (string, error) {
	c, err := prepare(ctx, c, checks.ControlPlane)
	if err != nil {
		return "", err
	}
	return c.Render()
}

// prepare adds what the rules of this machine leave alone: the control plane, sshd, and the user of
// a control plane on this machine. Users become numbers.
func prepare(ctx context.Context, c Config, controlPlane []string) (_ Config, err error) {
	c = c.withDefaults()
	s := &c.Settings
	if s.ExcludeUsers, err = userNumbers(s.ExcludeUsers); err != nil {
		return c, fmt.Errorf("interception.excludeUsers: %w", err)
	}
	if own, err := userNumbers([]string{"ashore"}); err == nil { // else there is none
		s.ExcludeUsers = append(s.ExcludeUsers, own...)
	}
	if c.ControlPlane, err = resolve(ctx, controlPlane); err != nil {
		return c, err
	}
	ssh, err := sshPorts()
	s.ExcludeInboundPorts = slices.Concat(s.ExcludeInboundPorts, ssh)
	return c, err
}

// undone adds to err what was done with the unconfirmed rules.
func undone(err error, what string, problem error) error {
	if problem != nil {
		return errors.Join(err, fmt.Errorf("the rules could not be %s: %w", what, problem))
	}
	return fmt.Errorf("the rules were %s: %w", what, err)
}

// confirm returns nil once all checks succeed together, else what failed last.
func (m Machine) confirm(ctx context.Context, c Config, checks Checks) error {
	end := time.Now().Add(cmp.Or(m.Timeout, 30*time.Second))
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var failed error
	for {
		now := checks.run(ctx, c)
		if now == nil {
			return nil
		}
		if failed == nil || ctx.Err() == nil && time.Now().Before(end) { // else the end made the last round fail
			failed = now
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return failed
			}
			return fmt.Errorf("interrupted before the checks had succeeded: %w", failed)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Boot installs the confirmed rules without checks, because control plane and Envoy may still be
// starting. It returns false if there are none. After an error InstalledFile is gone.
func (m Machine) Boot(ctx context.Context) (bool, error) {
	r, err := m.Record()
	if err == nil && r == nil {
		return false, nil
	}
	if err == nil {
		err = preflight(r.Config, false)
	}
	if err == nil {
		err = apply(ctx, r.Config)
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("no rules were installed: %w", err), wholefile.Remove(m.marker()))
	}
	return true, m.mark()
}

// Remove ends interception. Open connections through Envoy continue. For them the table remains,
// without effect on others, until Delete or the next boot.
func (m Machine) Remove(ctx context.Context) error {
	return m.end(ctx, drained())
}

// Delete ends interception and removes the table. It cuts connections through Envoy.
func (m Machine) Delete(ctx context.Context) error {
	return errors.Join(m.end(ctx, replace), setAddress6(ctx, false))
}

// end replaces the rules by others that do not intercept.
func (m Machine) end(ctx context.Context, rules string) error {
	if err := wholefile.Remove(m.record()); err != nil {
		return err
	}
	tables, err := nft(ctx, "", "list", "tables")
	if _, unmarked := os.Stat(m.marker()); err != nil && unmarked != nil {
		return nil // no rules are installed; the machine may have no nft, or no nf_tables in its kernel
	}
	if err == nil && hasTable(tables) {
		_, err = nft(ctx, rules, "-f", "-")
	}
	if err != nil {
		return err
	}
	return wholefile.Remove(m.marker())
}

// apply replaces the table in one transaction.
func apply(ctx context.Context, c Config) error {
	text, err := c.Render()
	if err != nil {
		return err
	}
	if _, err := nft(ctx, text, "-c", "-f", "-"); err != nil {
		return fmt.Errorf("the kernel refuses the rules (it needs the modules nft_nat, nft_redir, nft_tproxy, "+
			"nft_fib_inet, nft_ct and nft_reject_inet): %w", err)
	}
	if err := setAddress6(ctx, true); err != nil {
		return err
	}
	_, err = nft(ctx, text, "-f", "-")
	return err
}

// resolve finds the addresses of the control plane, which are never intercepted. It fails if no name
// resolves.
func resolve(ctx context.Context, hostPorts []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	var unknown error
	for _, hp := range hostPorts {
		host, port, err := net.SplitHostPort(hp)
		if err != nil {
			return nil, err
		}
		n, err := net.LookupPort("tcp", port)
		if err != nil {
			return nil, err
		}
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			unknown = errors.Join(unknown, fmt.Errorf("find the control plane: %w", err))
		}
		for _, a := range addrs {
			out = append(out, netip.AddrPortFrom(a.Unmap().WithZone(""), uint16(n)))
		}
	}
	if len(out) == 0 {
		return nil, unknown
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out), nil
}

func (m Machine) record() string { return filepath.Join(cmp.Or(m.Folder, StateFolder), recordFile) }

// Record returns the record of the confirmed rules; nil if there are none.
func (m Machine) Record() (*Record, error) {
	data, _, err := readfile.Read(m.record(), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w: run \"ashore-agent intercept install\" again", m.record(), err)
	}
	return r, nil
}

func (m Machine) write(r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.record()), 0o755); err != nil {
		return err
	}
	return wholefile.Write(m.record(), data)
}

func (m Machine) marker() string { return cmp.Or(m.Installed, InstalledFile) }

// mark creates InstalledFile.
func (m Machine) mark() error {
	if err := os.MkdirAll(filepath.Dir(m.marker()), 0o755); err != nil {
		return err
	}
	return os.WriteFile(m.marker(), nil, 0o600)
}
