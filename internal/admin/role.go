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

// Members are users and groups of this machine, by name or number.
type Members struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
}

// Roles are those of users besides root and the user that ashored runs as, who are admins.
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
	add := func(role Role, names []string, to map[uint32]Role, look func(string) (string, error)) {
		for _, name := range names {
			id, err := number(name, look)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: this machine has no %q (%w)", role, name, err))
			}
			to[id] = max(to[id], role)
		}
	}
	for i, m := range []Members{r.Viewer, r.Operator, r.Admin} {
		add(Viewer+Role(i), m.Users, a.users, userNumber)
		add(Viewer+Role(i), m.Groups, a.groups, groupNumber)
	}
	return a, errors.Join(errs...)
}

// number is a number, or that of a name.
func number(name string, look func(string) (string, error)) (uint32, error) {
	id, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		var text string
		if text, err = look(name); err == nil {
			id, err = strconv.ParseUint(text, 10, 32)
		}
	}
	return uint32(id), err
}

func userNumber(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupNumber(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}

// Others reports whether users besides root and the user of this process have a role.
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
