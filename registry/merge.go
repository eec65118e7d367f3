package registry

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Merging are the rules by which one service is made of what several sources say of it. The zero value: the declaration of
// the deciding source counts, and the endpoints of all stand side by side.
type Merging struct {
	// Fill names the fields of which the others give what the deciding source leaves open. All other fields are those of the
	// deciding source alone.
	Fill []Field
	// Shadow takes the endpoints of the first source that has any, and no others. Otherwise, of an endpoint that several
	// have, with the same address and ports, what the first of them says counts: its health, its identity.
	Shadow bool
	// Relayed takes what other control planes' registries know of a service beside what registries of ours know, after that. Otherwise
	// it counts where no registry of ours has the host.
	Relayed bool
}

// Field is one of a service's, called as in a ServiceEntry.
type Field string

// The fields that Merging may fill: ports that the deciding source does not have, and the protocol of those where it names
// none; labels that it does not have; virtual addresses, visibility and identities where it has none.
const (
	FieldAddresses       Field = "addresses"
	FieldExportTo        Field = "exportTo"
	FieldLabels          Field = "labels"
	FieldPorts           Field = "ports"
	FieldSubjectAltNames Field = "subjectAltNames"
)

// Fields are all that Merging may fill.
func Fields() []Field {
	return []Field{FieldAddresses, FieldExportTo, FieldLabels, FieldPorts, FieldSubjectAltNames}
}

// Conflict is a difference between two declarations of one service.
type Conflict struct {
	// Counts is the declaration that is in use, Other the one that is not.
	Counts, Other *Service
	// Field is what they differ in, and Text how.
	Field, Text string
}

// Merge makes one of what several sources say of one service, the deciding one first, and lists where they contradict one
// another. Endpoints whose addresses are found in another way than the service says are left out, and so are endpoints of
// another declaration of ports that this does not have: by name, number or where workloads listen, and a port alone is the same
// as another one alone. An endpoint that has none of the ports is left out of the list.
func (m Merging) Merge(parts []Instances) (Instances, []Conflict) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	out := parts[0]
	var conflicts []Conflict
	for _, p := range parts[1:] {
		conflicts = append(conflicts, Contradictions(out.Service, p.Service)...)
	}
	out.Service = m.declared(parts)
	u := m.unite(parts, out.Service.Ports)
	for i, ports := range u.lacking {
		if len(ports) > 0 {
			conflicts = append(conflicts, lackingPorts(parts[0].Service, parts[i].Service, ports))
		}
	}
	out.Service = found(out.Service, parts)
	if m.Shadow || u.filled || len(u.all) != out.Endpoints.Len() {
		out.Endpoints = &EndpointList{Items: u.all}
	}
	return out, conflicts
}

// Used is how many endpoints of each part are in use. Merge lists those in the order of parts.
func (m Merging) Used(parts []Instances) []int {
	if len(parts) == 1 {
		return []int{parts[0].Endpoints.Len()}
	}
	return m.unite(parts, m.declared(parts).Ports).used
}

// unite lists the endpoints that are in use, of a service with these ports, and counts those of each part.
func (m Merging) unite(parts []Instances, ports []Port) union {
	own := parts[0].Service.Ports
	u := union{ports: own, used: make([]int, len(parts)), lacking: make([][]Port, len(parts))}
	if len(ports) > len(own) {
		u.more = ports[len(own):] // the others' are filled in after those of the first
	}
	for i, p := range parts {
		if p.Service.Resolution == parts[0].Service.Resolution && (!m.Shadow || len(u.all) == 0) {
			before, list := len(u.all), p.Endpoints.All()
			if i > 0 && len(list) > 0 {
				list, u.lacking[i] = adaptionOf(p.Service.Ports, own).adapt(list)
			}
			if len(u.lacking[i]) > 0 {
				list = listening(list, ports)
			}
			list, _ = filledOf(p.Service.Ports, u.more).adapt(list)
			u.add(list)
			u.used[i] = len(u.all) - before
		}
	}
	return u
}

// union are the endpoints of several sources.
type union struct {
	ports, more []Port // of the service: those that the deciding source has, and those that others have besides
	all         []Endpoint
	used        []int            // how many of all are of each source
	lacking     [][]Port         // the ports that endpoints of each source do not have
	seen        map[string][]int // where in all they are, by place
	filled      bool             // some were told numbers of more
}

// add adds those of one source that none of the sources before it has. Of what one has, a later one may know more ports.
func (u *union) add(list []Endpoint) {
	if len(list) == 0 {
		return
	}
	if u.seen == nil {
		u.seen = make(map[string][]int, len(list))
	}
	before := len(u.all)
	for i := range list {
		place := u.place(&list[i])
		at := u.seen[place]
		if len(at) == 0 || at[0] >= before { // of one source all count, each by itself
			u.seen[place] = append(at, len(u.all))
			u.all = append(u.all, list[i])
			continue
		}
		for _, j := range at {
			u.fill(&u.all[j], &list[i])
		}
	}
}

// fill tells an endpoint the numbers that a later source knows of ports of which its own knows nothing.
func (u *union) fill(e, later *Endpoint) {
	for _, p := range u.more {
		n, known := later.Ports[p.Name]
		if _, own := e.Ports[p.Name]; !known || own {
			continue
		}
		ports := maps.Clone(e.Ports)
		if ports == nil {
			ports = map[string]uint32{}
		}
		ports[p.Name] = n
		e.Ports, u.filled = ports, true
	}
}

// place is where an endpoint is found: its address, and the numbers that the ports of the service have there.
func (u *union) place(e *Endpoint) string {
	b := append([]byte(e.Address), ' ')
	for _, p := range u.ports {
		b = strconv.AppendUint(append(b, ' '), uint64(e.Port(p)), 10)
	}
	return string(b)
}

// Contradictions are where a declaration says something else than the one that counts.
func Contradictions(counts, other *Service) []Conflict {
	var out []Conflict
	add := func(field, format string, args ...any) {
		out = append(out, Conflict{Counts: counts, Other: other, Field: field, Text: fmt.Sprintf(format, args...)})
	}
	if counts.Resolution != other.Resolution {
		add("resolution", "is %s, and its endpoints are left out of those that are found by %s", other.Resolution, counts.Resolution)
	}
	if counts.External != other.External {
		add("location", "is %s, not %s", locationName(other.External), locationName(counts.External))
	}
	if len(counts.Addresses) > 0 && len(other.Addresses) > 0 && !slices.Equal(counts.Addresses, other.Addresses) {
		add("addresses", "are %v, not %v", other.Addresses, counts.Addresses)
	}
	for _, p := range other.Ports {
		if q, ok := counts.Port(p.Number); ok && q.Protocol.Contradicts(p.Protocol) {
			add("ports", "port %d speaks %s, not %s", p.Number, p.Protocol, q.Protocol)
		}
	}
	return out
}

// found is s with all the addresses by which clients may have found the service so far: who declares it, and whose
// declaration counts, may change, and an allocated address is never another.
func found(s *Service, parts []Instances) *Service {
	if s.Resolution == Passthrough {
		return s
	}
	out := *s
	out.AutoAddresses = slices.Clip(out.AutoAddresses)
	for _, p := range parts {
		for _, a := range p.Service.AutoAddresses {
			if !slices.Contains(out.AutoAddresses, a) {
				out.AutoAddresses = append(out.AutoAddresses, a)
			}
		}
	}
	if len(out.AutoAddresses) == len(s.AutoAddresses) {
		return s
	}
	return &out
}

func locationName(external bool) string {
	if external {
		return "MESH_EXTERNAL"
	}
	return "MESH_INTERNAL"
}

// declared is the service as it is declared: what the deciding source says, filled where that is wanted.
func (m Merging) declared(parts []Instances) *Service {
	if len(m.Fill) == 0 {
		return parts[0].Service
	}
	return m.filled(parts)
}

// filled is the first declaration, with what it leaves open from those after it.
func (m Merging) filled(parts []Instances) *Service {
	s := *parts[0].Service
	for _, p := range parts[1:] {
		for _, f := range m.Fill {
			s.fill(f, p.Service)
		}
	}
	return &s
}

// fill takes of o what s leaves open in one field, and changes nothing that s points to.
func (s *Service) fill(f Field, o *Service) {
	switch f {
	case FieldAddresses:
		s.Addresses = orElse(s.Addresses, o.Addresses)
	case FieldExportTo:
		s.ExportTo = orElse(s.ExportTo, o.ExportTo)
	case FieldSubjectAltNames:
		s.SubjectAltNames = orElse(s.SubjectAltNames, o.SubjectAltNames)
	case FieldLabels:
		labels := maps.Clone(o.Labels)
		if labels == nil {
			return
		}
		maps.Copy(labels, s.Labels)
		s.Labels = labels
	case FieldPorts:
		s.Ports = slices.Clone(s.Ports)
		for _, p := range o.Ports {
			s.fillPort(p)
		}
	}
}

// fillPort adds a port that s does not have, by number and name, or says what the one speaks that s says nothing of.
func (s *Service) fillPort(p Port) {
	i := slices.IndexFunc(s.Ports, func(q Port) bool { return q.Number == p.Number })
	switch {
	case i >= 0 && s.Ports[i].Protocol == Unknown:
		s.Ports[i].Protocol = p.Protocol
	case i < 0 && !slices.ContainsFunc(s.Ports, func(q Port) bool { return strings.EqualFold(q.Name, p.Name) }):
		p.TargetPort = 0 // where its own endpoints listen, which say so; see filledOf
		s.Ports = append(s.Ports, p)
	}
}

func orElse[T any](list, other []T) []T {
	if len(list) > 0 {
		return list
	}
	return other
}

// Keep returns now, with the pointers of old where the contents are equal.
func Keep(old, now Instances) Instances {
	if old.Service.Equal(now.Service) {
		now.Service = old.Service
	}
	if old.Endpoints.Equal(now.Endpoints) {
		now.Endpoints = old.Endpoints
	}
	return now
}

// Equal says whether two services are the same in all respects.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil && reflect.DeepEqual(s, o)
}

// All are the endpoints, not to be changed; of a nil list, none.
func (l *EndpointList) All() []Endpoint {
	if l == nil {
		return nil
	}
	return l.Items
}

// Equal says whether two lists hold the same endpoints in the same order.
func (l *EndpointList) Equal(o *EndpointList) bool {
	return l == o || l != nil && o != nil && slices.EqualFunc(l.Items, o.Items, func(a, b Endpoint) bool { return a.Equal(&b) })
}

// Equal says whether two endpoints are the same in all respects.
func (e *Endpoint) Equal(o *Endpoint) bool {
	return e.Address == o.Address && e.Locality == o.Locality && e.Network == o.Network && e.Weight == o.Weight &&
		e.ServiceAccount == o.ServiceAccount && e.Namespace == o.Namespace && e.Workload == o.Workload &&
		e.TLSMode == o.TLSMode && e.Health == o.Health && e.States == o.States && maps.Equal(e.Ports, o.Ports) && maps.Equal(e.Labels, o.Labels)
}
