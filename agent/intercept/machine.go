package intercept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/machine"
)

// nft runs nft and returns what it prints.
func nft(ctx context.Context, input string, args ...string) (string, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		path = "/usr/sbin/nft" // not in the PATH of every root
	}
	return run(ctx, input, path, args...)
}

func run(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is missing: install the package nftables (for ip: iproute2)", filepath.Base(program))
	}
	text := strings.TrimSpace(problem.String())
	if strings.Contains(text, "Operation not permitted") {
		text += " (this needs root)"
	}
	return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, text)
}

// HasIPv6 reports whether the kernel supports IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// setAddress6 adds Address6 to the loopback interface, or removes it.
func setAddress6(ctx context.Context, add bool) error {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	if errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(off)) == "1" {
		return nil // IPv6 is off
	}
	args := []string{"replace", Address6 + "/128", "dev", "lo", "nodad"} // usable at once
	if !add {
		args = []string{"flush", "dev", "lo", "to", Address6}
	}
	_, err = run(ctx, "", "ip", append([]string{"-6", "address"}, args...)...)
	return err
}

// preflight refuses a machine that the rules would break. The error says what to do. running says
// that Envoy has to listen already.
func preflight(c Config, running bool) error {
	uid, err := userID(c.User)
	if err != nil {
		return err
	}
	gid, err := groupID(c.Group)
	if err != nil {
		return err
	}
	all, err := machine.Listeners(false)
	if err != nil {
		return err
	}
	listening := map[uint16]bool{}
	for _, l := range all {
		port := l.Address.Port()
		listening[port] = true
		if l.PID == 0 || port != outboundPort && port != inboundPort {
			continue
		}
		is, err := credentialsOf(l.PID)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has ended
		case err != nil:
			return err
		case is.gid != gid || is.uid != uid:
			return fmt.Errorf("%v listens on port %d as user %d and group %d; "+
				"the rules would send its own connections back to it: run Envoy as user %s (%d) "+
				"and group %s (%d), as ashore-envoy@.service does",
				l.Owner, port, is.uid, is.gid, c.User, uid, c.Group, gid)
		case is.capabilities&capNetRaw == 0:
			return fmt.Errorf("%v listens on port %d without CAP_NET_RAW, so that it cannot take inbound connections: "+
				"add AmbientCapabilities=CAP_NET_RAW to its unit", l.Owner, port)
		}
	}
	for _, port := range []uint16{outboundPort, inboundPort} {
		if running && !listening[port] {
			return fmt.Errorf("nothing listens on port %d: start the agent first (systemctl start ashore-agent), "+
				"with workload.interception set to tproxy", port)
		}
	}
	return nil
}

// capNetRaw is the bit of CAP_NET_RAW, which a transparent socket needs.
const capNetRaw = 1 << 13

func userID(name string) (uint64, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return id, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no user %s on this machine: install the packages ashore-agent and ashore-envoy, "+
			"or name one that exists", name)
	}
	return strconv.ParseUint(u.Uid, 10, 32)
}

// userNumbers replaces names of users by their numbers: Boot has to succeed if a user is deleted.
func userNumbers(names []string) (numbers []string, err error) {
	for _, name := range names {
		id, err := userID(name)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, strconv.FormatUint(id, 10))
	}
	return numbers, nil
}

func groupID(name string) (uint64, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return id, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no group %s on this machine: install the packages ashore-agent and ashore-envoy",
			name)
	}
	return strconv.ParseUint(g.Gid, 10, 32)
}

// credentials are a process's effective user, group and capabilities. Source: proc(5).
type credentials struct{ uid, gid, capabilities uint64 }

func credentialsOf(pid int) (c credentials, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2:
		case f[0] == "Uid:":
			c.uid, err = strconv.ParseUint(f[2], 10, 32)
		case f[0] == "Gid:":
			c.gid, err = strconv.ParseUint(f[2], 10, 32)
		case f[0] == "CapEff:":
			c.capabilities, err = strconv.ParseUint(f[1], 16, 64)
		}
		if err != nil {
			break
		}
	}
	return c, err
}
