package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// JoinConfig describes how a workload joins the mesh.
type JoinConfig struct {
	// Settings are those of the workload, before Complete. XDS.Addresses are the control planes.
	// The namespace is the group's; without a group, it has to be that of the token's service account.
	// Without Workload.Addresses the workload has this machine's source address towards the control
	// plane.
	Settings Settings
	// Group is the WorkloadGroup that it becomes a member of, "namespace/name". Empty: none; that needs
	// XDS.TokenFile.
	Group string
	// Hash is that of the control plane's root certificate, "sha256:…". Empty: XDS.CAFile has the root
	// certificates.
	Hash string
	// Token is the one-time token. Empty: XDS.TokenFile has the token of a service account.
	Token string
	Log   hclog.Logger

	roots *ca.Bundle // of XDS.CAFile; nil: Hash counts; set by Prepare
}

// JoinResult is the result of Join.
type JoinResult struct {
	// Settings are those to run with, before Complete, with namespace and addresses.
	Settings Settings
	Identity *Identity
	// Already says that the workload had joined before, and that the token was not used.
	Already bool
	// Running is the process of the agent that runs with this identity; zero if there is none.
	Running int
}

// joinTries is how often an overloaded control plane is asked.
const joinTries = 6

// Join makes a key, requests a certificate with the token, and stores both in the state folder. It
// verifies the control plane by the hash before it sends the token. If the answer is lost, the same
// command works again on this machine. A wrong argument is a UsageError.
func Join(ctx context.Context, c JoinConfig) (result *JoinResult, err error) {
	if err := c.Prepare(); err != nil {
		return nil, err
	}
	s := c.Settings
	lock, err := lockState(s.State)
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		return c.joinedBefore(s, busy.PID)
	case err != nil:
		return nil, diskError("join", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	disk := store{s.State}
	if r, err := c.joinedBefore(s, 0); r != nil || err != nil {
		return r, err
	}
	key, err := disk.nextKey()
	if err != nil {
		return nil, err
	}
	if err := s.FindAddress(ctx); err != nil {
		return nil, err
	}
	id, err := c.ask(ctx, certificateRequest{key: key, token: c.Token, name: s.Workload.Name, group: c.Group},
		s.own(), disk.former())
	if _, refused := errors.AsType[*RefusedError](err); refused {
		return nil, errors.Join(err, disk.forgetKey())
	} else if err != nil {
		return nil, err // the key stays: the control plane may have used the token for it
	}
	if id.ID.Namespace != s.Workload.Namespace {
		return nil, &UsageError{"workload.namespace", fmt.Sprintf("%q is not that of the token in %s, which is of %s; "+
			"set it to %s (--namespace)", s.Workload.Namespace, s.XDS.TokenFile, id.ID, id.ID.Namespace)}
	}
	// It may be of another mesh with the same names.
	if err := wholefile.Remove(filepath.Join(s.State, cacheFile)); err != nil {
		return nil, diskError("remove the copy of an earlier configuration", err)
	}
	if err := saveSettings(&s); err != nil {
		return nil, err
	}
	now := time.Now()
	if err := disk.save(id, Joined{Version: 1, Group: c.Group, Workload: s.Workload.Name, At: now, Renewed: now,
		Token: tokenHash(c.Token)}); err != nil {
		return nil, err
	}
	return &JoinResult{Settings: s, Identity: id}, disk.forgetKey()
}

// Prepare checks the arguments, and fills in the name, the namespace and the state folder.
func (c *JoinConfig) Prepare() error {
	s := &c.Settings
	check := &checker{}
	if c.Group != "" || s.XDS.TokenFile == "" {
		c.prepareGroup(check)
	}
	if s.Dev {
		check.fail("dev", "is for a workload without identity; leave it out")
	}
	c.prepareProof(check)
	// The address is known once the control plane was reached. Check with a placeholder.
	full := *s
	if len(full.Workload.Addresses) == 0 {
		full.Workload.Addresses = []string{"127.0.0.2"}
	}
	err := full.Complete()
	if len(s.XDS.Addresses) == 0 {
		err = &UsageError{"--control-plane",
			"not set; give host:port of the control plane's TLS port, such as ashore.example.com:15012"}
	}
	if s.Workload.Name == "" && full.Workload.Name == "localhost" {
		check.fail("workload.name",
			"this machine is called localhost, as others are; give a name, or set the host name (hostnamectl set-hostname NAME)")
	}
	s.Workload.Name, s.State = full.Workload.Name, full.State
	if err == nil {
		s.State, err = filepath.Abs(s.State)
	}
	return errors.Join(append(check.errs, err)...)
}

// prepareGroup checks the group, and fills in the namespace.
func (c *JoinConfig) prepareGroup(check *checker) {
	if c.Group == "" {
		check.fail("--group", "not set; give the WorkloadGroup of the one-time token, or use the token of a service "+
			"account (--service-account-token)")
		return
	}
	w := &c.Settings.Workload
	namespace, group, ok := strings.Cut(c.Group, "/")
	if !ok || !dnsname.ValidLabel(namespace) || group == "" || strings.ContainsAny(group, "/ ") {
		check.fail("--group", "%q is not a WorkloadGroup; want namespace/name, such as shop/web", c.Group)
	}
	if own := w.Namespace; own != Default().Workload.Namespace && own != namespace {
		check.fail("workload.namespace", "%q is not that of the group %s; leave it out", own, c.Group)
	}
	w.Namespace, w.Group = namespace, group
}

// prepareProof checks the token and how the control plane is verified, and reads the root
// certificates.
func (c *JoinConfig) prepareProof(check *checker) {
	x := &c.Settings.XDS
	switch {
	case x.TokenFile != "" && c.Token != "":
		check.fail("xds.tokenFile", "is set, and there is a one-time token: leave one of them out")
	case x.TokenFile != "":
		if _, err := readAccountToken(x.TokenFile); err != nil {
			check.fail("xds.tokenFile", "%v", err)
		}
	default:
		if err := checkToken(c.Token); err != nil {
			check.fail("--token-file", "%v", err)
		}
	}
	if x.CAFile == "" {
		if err := checkHash(c.Hash); err != nil {
			check.fail("--ca-hash", "%q is not the hash of a root certificate: %v; or give a file with root certificates "+
				"(--ca-file)", c.Hash, err)
		}
		return
	}
	text, err := readSmall(x.CAFile)
	if err == nil {
		c.roots, err = parseRoots([]string{string(text)})
	}
	check.want(err == nil, "xds.caFile", "%v", err)
	check.want(c.Hash == "", "xds.caFile", "is set, and --ca-hash too: leave one of them out")
}

// ask requests the certificate. It asks an overloaded control plane again: with the same key a token
// gives the same answer. own is the workload's address. former is the certificate of an earlier join,
// or empty. It proves that the name is this machine's.
func (c *JoinConfig) ask(ctx context.Context, q certificateRequest, own netip.Addr,
	former *tls.Certificate) (*Identity, error) {
	x := &c.Settings.XDS
	check := &serverCheck{roots: c.roots, hash: c.Hash, file: x.CAFile, now: time.Now}
	a := &authority{addresses: x.Addresses, own: own, tokenFile: x.TokenFile, cluster: c.Settings.Workload.Cluster,
		config: func() *tls.Config { return check.config(func() *tls.Certificate { return former }) }}
	for n := 1; ; n++ {
		id, err := a.ask(ctx, q)
		if err == nil {
			return id, c.verifyIdentity(id)
		}
		if !busyAnswer(err) || n == joinTries {
			return nil, err
		}
		pause := retryPause(n+1, 10*time.Minute, rand.Float64())
		c.Log.Info("the control plane is asked again", "error", err, "in", pause.Round(time.Millisecond))
		if !task.Sleep(ctx, pause) {
			return nil, err
		}
	}
}

// verifyIdentity checks that an identity is of the mesh of the join command, and valid now.
func (c *JoinConfig) verifyIdentity(id *Identity) error {
	if !c.sameMesh(id) {
		return fmt.Errorf("the roots that the control plane gave do not include the given one, %s: join again with "+
			"the present root of the mesh", cmp.Or(c.Hash, c.Settings.XDS.CAFile))
	}
	return checkValidNow(id, time.Now())
}

// busyAnswer reports whether a control plane was reached and is overloaded.
func busyAnswer(err error) bool {
	return slices.Contains([]codes.Code{codes.ResourceExhausted, codes.Unavailable, codes.Aborted}, status.Code(err))
}

// checkToken checks the form of a token. Its errors do not quote the token.
func checkToken(token string) error {
	parts := strings.Split(token, ".")
	switch {
	case token == "":
		return errors.New("the token is empty; paste the whole command of \"ashorectl join-token create\", with the " +
			"lines from EOF to EOF")
	case len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token is not one of \"ashorectl join-token create\": it has spaces or other signs in it, " +
			"or is too long")
	case len(parts) != 3 || !isJoinToken(token) || parts[1] == "" || parts[2] == "":
		return errors.New("the token is not one of \"ashorectl join-token create\": want ashore-join.ID.SECRET, " +
			"copied whole")
	}
	return nil
}

func isJoinToken(token string) bool { return strings.HasPrefix(token, "ashore-join.") }

// maxToken bounds a token, in bytes.
const maxToken = 1 << 10

// ReadToken reads a token: all of r, without white space around it.
func ReadToken(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxToken+2))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
