package agent

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// running answers for a state folder that another process has.
func (c *JoinConfig) running(s Settings, busy *BusyError) (*JoinResult, error) {
	id, joined, err := store{s.State}.load()
	switch {
	case err != nil:
		return nil, busy
	case joined.Group != c.Group:
		return nil, fmt.Errorf("an agent runs here (process %d) with an identity of the group %s, and the line is for %s: use another folder (--state), or leave first: ashore-agent leave --state %s",
			busy.PID, joined.Group, c.Group, s.State)
	case !time.Now().Before(id.Leaf().NotAfter) || !c.sameMesh(id):
		return nil, fmt.Errorf("an agent runs here (process %d) with an identity that is not good any more: stop it, and run this line again", busy.PID)
	case c.another(joined):
		return nil, fmt.Errorf("an agent runs here (process %d), and this is another line than the one that it joined by: to join anew, stop it and run this line again; "+
			"otherwise there is nothing to do (the token was not used)", busy.PID)
	}
	return &JoinResult{Settings: s, Identity: id, Already: true, Running: busy.PID}, nil
}

// already answers for a workload that has joined before; nil when it has to join.
func (c *JoinConfig) already(s Settings, disk store) (*JoinResult, error) {
	id, joined, err := disk.load()
	switch {
	case errors.Is(err, ErrNoIdentity):
		return nil, nil
	case err != nil:
		c.Log.Warn("the identity of an earlier join is replaced", "reason", err)
		return nil, nil
	case joined.Group != c.Group:
		return nil, fmt.Errorf("%s has the identity of a member of %s, and the line is for %s: use another folder (--state), or leave first: ashore-agent leave --state %s",
			s.State, joined.Group, c.Group, s.State)
	case !time.Now().Before(id.Leaf().NotAfter):
		c.Log.Info("the certificate of an earlier join has ended: joining anew", "ended", id.Leaf().NotAfter)
		return nil, nil
	case !c.sameMesh(id):
		c.Log.Info("the line names another root certificate than that of the earlier join: joining anew")
		return nil, nil
	case c.another(joined):
		c.Log.Info("this is another line than that of the earlier join: joining anew")
		return nil, nil
	}
	return &JoinResult{Settings: s, Identity: id, Already: true}, nil
}

// another says that the line is not the one that the workload joined by: somebody made it because this workload is to join
// again, after a revocation perhaps, or because its key was lost.
func (c *JoinConfig) another(j Joined) bool { return j.Token != "" && j.Token != tokenHash(c.Token) }

// former is the certificate of an earlier join; nil: there is none that can be read. The control plane is verified before it is
// shown.
func (s store) former() *tls.Certificate {
	id, _, err := s.load()
	if err != nil {
		return nil // whoever joins does not need it
	}
	return id.Certificate()
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// sameMesh says whether an identity belongs to the mesh of the join command.
func (c *JoinConfig) sameMesh(id *Identity) bool {
	if id.rooted() != nil {
		return false
	}
	for _, r := range id.Roots {
		if hashOf(r) == c.Hash {
			return true
		}
	}
	return false
}
