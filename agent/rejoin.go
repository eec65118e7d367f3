package agent

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/ca"
)

// joinedBefore returns the result for a workload that joined by the same command before; nil if it
// has to join. pid is the process of the agent that runs with this identity; zero if none does.
// While one runs, a reason to join again is an error.
func (c *JoinConfig) joinedBefore(s Settings, pid int) (*JoinResult, error) {
	id, joined, err := store{s.State}.load()
	var reason string
	switch {
	case errors.Is(err, ErrNoIdentity) && pid == 0:
		return nil, nil
	case errors.Is(err, ErrNoIdentity):
		return nil, &BusyError{Dir: s.State, PID: pid}
	case err != nil:
		reason = err.Error()
	case joined.Group != c.Group:
		return nil, fmt.Errorf("%s is a member of %s on this machine already, and the command is for %s: for a second "+
			"workload add --name NAME --address ADDRESS --interception none; to move this one, run "+
			"\"ashore-agent leave --state %s\" first", id.ID, joined.Group, c.Group, s.State)
	case !time.Now().Before(id.Leaf().NotAfter):
		reason = "its certificate ended at " + id.Leaf().NotAfter.UTC().Format(time.RFC3339)
	case !c.sameMesh(id):
		reason = "the command names another root certificate"
	case joined.Token != "" && joined.Token != tokenHash(c.Token):
		reason = "this is another command than the one that it joined by"
	default:
		return &JoinResult{Settings: s, Identity: id, Already: true, Running: pid}, nil
	}
	if pid != 0 {
		return nil, fmt.Errorf("an agent runs here (process %d) with an earlier identity, and %s: to join again, stop it "+
			"and run this command again (the token was not used)", pid, reason)
	}
	c.Log.Info("the identity of an earlier join is replaced", "reason", reason)
	return nil, nil
}

// former returns the certificate of an earlier join; empty if none can be read. It is presented only
// to a control plane that was verified.
func (s store) former() *tls.Certificate {
	id, _, err := s.load()
	if err != nil {
		return &tls.Certificate{} // a join does not need it
	}
	return id.Certificate()
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// sameMesh reports whether an identity belongs to the mesh of the join command.
func (c *JoinConfig) sameMesh(id *Identity) bool {
	named := func(root *x509.Certificate) bool {
		return ca.RootID(root) == c.Hash || c.roots != nil && slices.ContainsFunc(c.roots.Roots, root.Equal)
	}
	return id.rooted() == nil && slices.ContainsFunc(id.Roots.Roots, named)
}
