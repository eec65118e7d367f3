package admin

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
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
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Admin:
		return "admin"
	default:
		return "nobody"
	}
}

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

// Resolve looks names up, once: a user who comes to a group later needs no new look, one who is
// made anew does. Errors name the role and the name that this machine does not know.
func (r Roles) Resolve() (Access, error) {
	a := Access{users: map[uint32]Role{}, groups: map[uint32]Role{}}
	var errs []error
	for role, m := range map[Role]Members{Viewer: r.Viewer, Operator: r.Operator, Admin: r.Admin} {
		for _, name := range m.Users {
			errs = append(errs, a.add(a.users, role, "user", name, userID))
		}
		for _, name := range m.Groups {
			errs = append(errs, a.add(a.groups, role, "group", name, groupID))
		}
	}
	slices.SortFunc(errs, func(x, y error) int { return compareText(x, y) })
	return a, errors.Join(errs...)
}

// add gives the user or group of that name a role, the higher one when it has two.
func (Access) add(to map[uint32]Role, role Role, what, name string, look func(string) (string, error)) error {
	number := name
	if _, err := strconv.ParseUint(name, 10, 32); err != nil {
		if number, err = look(name); err != nil {
			return fmt.Errorf("%s: this machine has no %s %q (%w)", role, what, name, err)
		}
	}
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return fmt.Errorf("%s: %s %q: %w", role, what, name, err)
	}
	to[uint32(id)] = max(to[uint32(id)], role)
	return nil
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}

func compareText(x, y error) int {
	text := func(e error) string {
		if e == nil {
			return ""
		}
		return e.Error()
	}
	switch a, b := text(x), text(y); {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
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
