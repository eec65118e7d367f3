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
	// Nobody may do nothing. It is what everybody is whom no setting names.
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

// Members are users and groups of this machine, by name or number.
type Members struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
}

// Roles says who has which role, besides root and the user that ashored runs as, who are admins.
type Roles struct {
	Viewer   Members `yaml:"viewer"`
	Operator Members `yaml:"operator"`
	Admin    Members `yaml:"admin"`
}

// Access is Roles with the numbers that the kernel knows. The zero value names nobody.
type Access struct {
	users, groups map[uint32]Role
}

// Resolve looks names up, once: a user who joins a group later needs no new look, one who is created
// again does. Of two roles of one user the higher one counts. Errors name the role and the name that
// this machine does not know.
func (r Roles) Resolve() (Access, error) {
	a := Access{users: map[uint32]Role{}, groups: map[uint32]Role{}}
	var errs []error
	add := func(role Role, what string, names []string, to map[uint32]Role, look func(string) (string, error)) {
		for _, name := range names {
			id, err := strconv.ParseUint(name, 10, 32)
			if err != nil {
				var number string
				if number, err = look(name); err == nil {
					id, err = strconv.ParseUint(number, 10, 32)
				}
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: this machine has no %s %q (%w)", role, what, name, err))
				continue
			}
			to[uint32(id)] = max(to[uint32(id)], role)
		}
	}
	for i, m := range []Members{r.Viewer, r.Operator, r.Admin} {
		role := Viewer + Role(i)
		add(role, "user", m.Users, a.users, func(name string) (string, error) {
			u, err := user.Lookup(name)
			if err != nil {
				return "", err
			}
			return u.Uid, nil
		})
		add(role, "group", m.Groups, a.groups, func(name string) (string, error) {
			g, err := user.LookupGroup(name)
			if err != nil {
				return "", err
			}
			return g.Gid, nil
		})
	}
	return a, errors.Join(errs...)
}

// Others says that somebody besides root and the user of this process has a role.
func (a Access) Others() bool { return len(a.users)+len(a.groups) > 0 }

// Role is what a peer may do: the most that it may as a user, or as a member of a group.
func (a Access) Role(p Peer) Role {
	if p.UID == 0 || int(p.UID) == os.Geteuid() {
		return Admin
	}
	role := a.users[p.UID]
	for _, g := range p.Groups {
		role = max(role, a.groups[g])
	}
	return role
}
