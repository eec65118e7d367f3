package admin

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// Role is what an operator may do. Each one may do what those before it may.
type Role int

const (
	// Nobody may do nothing. It is the role of users that no setting names.
	Nobody Role = iota
	// Viewer may see how everything is, but not what proxies are sent, nor the audit log.
	Viewer
	// Operator may also read those, write configuration to the store, make and revoke join tokens,
	// and revoke and restore workloads.
	Operator
	// Admin may also change the certificate authority, and take profiles.
	Admin
)

// String is the role as settings name it.
func (r Role) String() string { return [...]string{"nobody", "viewer", "operator", "admin"}[r] }

// Roles are those of groups of this machine, by name or number. Root and the user that ashored runs
// as are admins.
type Roles struct {
	Viewer   []string `yaml:"viewer"`
	Operator []string `yaml:"operator"`
	Admin    []string `yaml:"admin"`
}

// Access is Roles by the numbers of the groups.
type Access map[uint32]Role

// Resolve looks the groups up, once. Of two roles of one group the higher one counts. Errors name
// the role and the group that this machine does not have.
func (r Roles) Resolve() (Access, error) {
	a := Access{}
	var errs []error
	for i, names := range [][]string{r.Viewer, r.Operator, r.Admin} {
		role := Viewer + Role(i)
		for _, name := range names {
			id, err := groupNumber(name)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: this machine has no group %q", role, name))
			}
			a[id] = max(a[id], role)
		}
	}
	return a, errors.Join(errs...)
}

// groupNumber returns the number of a group. name may be the number.
func groupNumber(name string) (uint32, error) {
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	id, err := strconv.ParseUint(name, 10, 32)
	return uint32(id), err
}

// Others reports whether users other than root and the user of this process may have a role.
func (a Access) Others() bool { return len(a) > 0 }

// Role is what a peer may do: the most that one of its groups may.
func (a Access) Role(p Peer) Role {
	if p.UID == 0 || int(p.UID) == os.Geteuid() {
		return Admin
	}
	role := Nobody
	for _, g := range p.Groups {
		role = max(role, a[g])
	}
	return role
}
