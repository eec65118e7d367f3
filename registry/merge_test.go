package registry

import (
	gocmp "cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func part(s Service, addresses ...string) Instances {
	out := Instances{Service: &s}
	if len(addresses) > 0 {
		out.Endpoints = &EndpointList{}
		for _, a := range addresses {
			out.Endpoints.Items = append(out.Endpoints.Items, Endpoint{Address: a})
		}
	}
	return out
}

// One service of several declarations, by the rules: whose declaration counts, whose endpoints, and what is told.
func TestMerge(t *testing.T) {
	t.Parallel()
	key := Key{"web", "shop"}
	first := Service{Key: key, Source: "file", Ports: []Port{{Number: 80, Name: "http", Protocol: HTTP}, {Number: 81, Name: "more"}}}
	other := Service{
		Key: key, Source: "consul", Ports: []Port{{Number: 80, Name: "http", Protocol: HTTP}, {Number: 81, Name: "more", Protocol: GRPC}, {Number: 90, Name: "admin", Protocol: TCP}, {Number: 91, Name: "HTTP"}},
		Labels: map[string]string{"a": "b"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, ExportTo: []string{"."}, SubjectAltNames: []string{"x"},
	}
	full := first
	full.Ports = other.Ports[:3]
	full.Labels, full.Addresses, full.ExportTo, full.SubjectAltNames = other.Labels, other.Addresses, other.ExportTo, other.SubjectAltNames
	ports, labels := first, first
	ports.Ports, labels.Labels = full.Ports, map[string]string{"a": "b", "c": "d"}
	labelled := other
	labelled.Labels = map[string]string{"a": "no", "c": "d"}
	dns := other
	dns.Resolution = DNS
	for name, c := range map[string]struct {
		rules Merging
		parts []Instances
		want  Instances
	}{
		"alone":                        {Merging{Fill: Fields(), Shadow: true}, []Instances{part(first, "1")}, part(first, "1")},
		"the first, endpoints of all":  {Merging{}, []Instances{part(first, "1"), part(other, "2", "3")}, part(first, "1", "2", "3")},
		"endpoints of the second only": {Merging{}, []Instances{part(first), part(other, "2")}, part(first, "2")},
		"filled in one field":          {Merging{Fill: []Field{FieldPorts}}, []Instances{part(first, "1"), part(other, "2")}, part(ports, "1", "2")},
		"filled twice":                 {Merging{Fill: []Field{FieldLabels}}, []Instances{part(first, "1"), part(other, "2"), part(labelled)}, part(labels, "1", "2")},
		"filled":                       {Merging{Fill: Fields()}, []Instances{part(first, "1"), part(other, "2")}, part(full, "1", "2")},
		"shadowed":                     {Merging{Shadow: true}, []Instances{part(first, "1"), part(other, "2")}, part(first, "1")},
		"nothing to shadow with":       {Merging{Shadow: true}, []Instances{part(first), part(other, "2"), part(other, "3")}, part(first, "2")},
		"found in another way":         {Merging{}, []Instances{part(first, "1"), part(dns, "example.com")}, part(first, "1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := c.rules.Merge(c.parts)
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Error(diff)
			}
			sum := 0
			for _, n := range c.rules.Used(c.parts) {
				sum += n
			}
			if sum != got.Endpoints.Len() {
				t.Errorf("%d endpoints are said to be in use, and %d are", sum, got.Endpoints.Len())
			}
			if !cmp.Equal(first.Ports, []Port{{Number: 80, Name: "http", Protocol: HTTP}, {Number: 81, Name: "more"}}) {
				t.Error("the declaration was changed")
			}
		})
	}
}

// Of an endpoint that two sources have the first one's word counts; other ports at one address are other endpoints.
func TestMergeSameEndpoint(t *testing.T) {
	t.Parallel()
	s := Service{Key: Key{"web", "shop"}, Ports: []Port{{Number: 80, Name: "http"}}}
	list := func(all ...Endpoint) Instances { return Instances{Service: &s, Endpoints: &EndpointList{Items: all}} }
	at := func(port uint32, health Health, account string) Endpoint {
		return Endpoint{Address: "10.0.0.1", Ports: map[string]uint32{"http": port}, Health: health, ServiceAccount: account}
	}
	first := list(at(8080, Unhealthy, "web"), at(8080, Healthy, "twin"))
	got, _ := Merging{}.Merge([]Instances{first, list(at(8080, Healthy, "other"), at(9090, Healthy, "more"))})
	want := []Endpoint{at(8080, Unhealthy, "web"), at(8080, Healthy, "twin"), at(9090, Healthy, "more")}
	if diff := cmp.Diff(want, got.Endpoints.Items); diff != "" {
		t.Error(diff)
	}
	if got, _ := (Merging{}).Merge([]Instances{first, list(at(8080, Healthy, "other"))}); got.Endpoints != first.Endpoints {
		t.Error("another list for the same endpoints")
	}
}

// Where ports are filled in, an endpoint that two sources have is told the number that the later one knows, and keeps those
// of the first one's word.
func TestMergeFilledNumbers(t *testing.T) {
	t.Parallel()
	first := Service{Key: Key{"web", "shop"}, Ports: []Port{{Number: 80, Name: "http"}}}
	other := Service{Key: first.Key, Ports: []Port{{Number: 80, Name: "http"}, {Number: 9090, Name: "admin"}}}
	list := func(s Service, all ...Endpoint) Instances {
		return Instances{Service: &s, Endpoints: &EndpointList{Items: all}}
	}
	one := list(first, Endpoint{Address: "10.0.0.1"}, Endpoint{Address: "10.0.0.2", Ports: map[string]uint32{"admin": 7}})
	two := list(other, Endpoint{Address: "10.0.0.1", Ports: map[string]uint32{"admin": 19090}}, Endpoint{Address: "10.0.0.2", Ports: map[string]uint32{"admin": 8}})
	rules := Merging{Fill: []Field{FieldPorts}}
	got, _ := rules.Merge([]Instances{one, two})
	want := []Endpoint{{Address: "10.0.0.1", Ports: map[string]uint32{"admin": 19090}}, one.Endpoints.Items[1]}
	if diff := cmp.Diff(want, got.Endpoints.Items); diff != "" {
		t.Error(diff)
	}
	if one.Endpoints.Items[0].Ports != nil {
		t.Error("the list of the first source was changed")
	}
	if d := cmp.Diff([]int{2, 0}, rules.Used([]Instances{one, two})); d != "" {
		t.Error(d)
	}
}

// A port that is filled in is the number that its own declaration gives it; where the workloads of that listen is said of them alone.
// Others that know nothing of the port are taken to listen at its number.
func TestMergeFilledTargets(t *testing.T) {
	t.Parallel()
	service := func(ports ...Port) Service {
		return Service{Key: Key{"web", "shop"}, Ports: append([]Port{{Number: 80, Name: "http"}}, ports...)}
	}
	parts := []Instances{
		part(service(), "1", "2"),
		part(service(Port{Number: 9000, Name: "adm", TargetPort: 8080}), "2", "3"),
		part(service(Port{Number: 9000, Name: "admin", TargetPort: 7070}), "4"),
		part(service(Port{Number: 9001, Name: "adm"}), "5"),
		part(service(), "6"),
	}
	got, _ := Merging{Fill: []Field{FieldPorts}}.Merge(parts)
	want := []Port{{Number: 80, Name: "http"}, {Number: 9000, Name: "adm"}}
	if d := cmp.Diff(want, got.Service.Ports[:2]); d != "" {
		t.Fatalf("ports (-want +got):\n%s", d)
	}
	listens := map[string]uint32{}
	for _, e := range got.Endpoints.All() {
		listens[e.Address] = e.Port(want[1])
	}
	if d := cmp.Diff(map[string]uint32{"1": 9000, "2": 8080, "3": 8080, "4": 7070, "5": 9001, "6": 9000}, listens); d != "" {
		t.Errorf("port 9000 (-want +got):\n%s", d)
	}
	if e := parts[1].Endpoints.Items[0]; e.Ports != nil {
		t.Error("the list of a source was changed")
	}
}

// Endpoints listen where their own declaration has them, whatever the one that counts calls its ports; of ports that they do not have
// they are left out, and that is told.
func TestMergePorts(t *testing.T) {
	t.Parallel()
	type ports = map[string]uint32
	main := []Port{{Number: 8080, Name: "main"}}
	tests := map[string]struct {
		counts, other []Port
		own           ports // of the endpoint of the other
		want          []uint32
		lacking       string
	}{
		"the same":                     {main, main, nil, []uint32{8080}, ""},
		"by name":                      {[]Port{{Number: 80, Name: "http"}}, []Port{{Number: 8080, Name: "http"}, {Number: 9, Name: "x"}}, nil, []uint32{8080}, ""},
		"by name, its own number":      {[]Port{{Number: 80, Name: "http"}}, []Port{{Number: 8080, Name: "http"}, {Number: 9, Name: "x"}}, ports{"http": 31000}, []uint32{31000}, ""},
		"by number":                    {[]Port{{Number: 8080, Name: "http"}, {Number: 9, Name: "y"}}, []Port{{Number: 8080, Name: "main", TargetPort: 81}, {Number: 9, Name: "x"}}, nil, []uint32{81, 9}, ""},
		"by number, its own number":    {[]Port{{Number: 8080, Name: "http"}, {Number: 9, Name: "x"}}, []Port{{Number: 8080, Name: "main"}, {Number: 9, Name: "x"}}, ports{"main": 31000}, []uint32{31000, 9}, ""},
		"by where they listen":         {[]Port{{Number: 80, Name: "http", TargetPort: 8080}, {Number: 9, Name: "x"}}, []Port{{Number: 8080, Name: "main"}, {Number: 9, Name: "x"}}, nil, []uint32{8080, 9}, ""},
		"one each":                     {[]Port{{Number: 80, Name: "http"}}, main, nil, []uint32{8080}, ""},
		"one each, its own number":     {[]Port{{Number: 80, Name: "http"}}, main, ports{"main": 31000}, []uint32{31000}, ""},
		"it says itself":               {[]Port{{Number: 80, Name: "http"}, {Number: 9000, Name: "admin"}}, main, ports{"http": 7, "admin": 8}, []uint32{7, 8}, "left out of port 80 (http), port 9000 (admin)"}, // of which the second endpoint says nothing,
		"one of two":                   {[]Port{{Number: 8080, Name: "http"}, {Number: 9000, Name: "admin"}}, main, nil, []uint32{8080, 0}, "left out of port 9000 (admin): it has port 8080 (main), by"},
		"none of two":                  {[]Port{{Number: 80, Name: "http"}, {Number: 9000, Name: "admin"}}, main, ports{"main": 1}, []uint32{0, 0}, "left out of port 80 (http), port 9000 (admin): it has port 8080 (main), by"},
		"none of one":                  {[]Port{{Number: 80, Name: "http"}}, []Port{{Number: 1, Name: "a"}, {Number: 2, Name: "b"}}, nil, []uint32{0}, "left out of port 80 (http): it has port 1 (a), port 2 (b), by"},
		"what the one that counts has": {main, []Port{{Number: 8080, Name: "main"}, {Number: 2, Name: "b"}}, nil, []uint32{8080}, ""},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, other := part(Service{Ports: c.counts}, "1"), part(Service{Ports: c.other}, "2", "3", "unix:///4")
			other.Endpoints.Items[0].Ports = c.own
			was := maps.Clone(c.own)
			got, conflicts := Merging{}.Merge([]Instances{first, other})
			listens := func(address string) []uint32 { // 0 where it is left out
				out := make([]uint32, len(c.counts))
				at := slices.IndexFunc(got.Endpoints.Items, func(e Endpoint) bool { return e.Address == address })
				for i, p := range c.counts {
					if at >= 0 {
						out[i] = got.Endpoints.Items[at].Port(p)
					}
				}
				return out
			}
			if have := listens("2"); !slices.Equal(have, c.want) || !maps.Equal(was, c.own) {
				t.Errorf("it listens at %v, want %v", have, c.want)
			}
			for i, p := range c.counts {
				if decides := listens("1"); decides[i] != gocmp.Or(p.TargetPort, p.Number) {
					t.Errorf("the endpoint of the one that counts listens at %v", decides)
				}
			}
			if last := got.Endpoints.Items[got.Endpoints.Len()-1]; last.Address != "unix:///4" || last.Ports != nil {
				t.Errorf("the socket is %+v, want one without ports", last)
			}
			if lacking := len(conflicts) > 0; lacking && (c.lacking == "" || !strings.Contains(conflicts[0].Text, c.lacking)) {
				t.Errorf("%+v", conflicts)
			} else if !lacking && c.lacking != "" {
				t.Error("nobody says what is left out")
			}
		})
	}
}

// An endpoint that has none of the ports of the service is none of it: nobody counts it, and it does not stand in the way of those of the
// next source. Of ports that are filled in it has those that it knows nothing of, and a socket has no ports that it could lack.
func TestMergeWithoutPort(t *testing.T) {
	t.Parallel()
	first := part(Service{Ports: []Port{{Number: 80, Name: "http"}, {Number: 9000, Name: "admin"}}})
	other := part(Service{Ports: []Port{{Number: 1, Name: "a"}}}, "1", "unix:///2")
	other.Endpoints.Items[1].Ports = map[string]uint32{"http": 0, "admin": 0}
	deaf, third := part(*other.Service, "1", "3"), part(*first.Service, "4")
	some := part(*other.Service, "1", "5", "6")
	some.Endpoints.Items[1].Ports = map[string]uint32{"admin": 7}
	for name, c := range map[string]struct {
		rules Merging
		parts []Instances
		want  []string
		used  []int
	}{
		"of all":             {Merging{}, []Instances{first, deaf, third}, []string{"4"}, []int{0, 0, 1}},
		"of the first":       {Merging{Shadow: true}, []Instances{first, deaf, third}, []string{"4"}, []int{0, 0, 1}},
		"one has one":        {Merging{Shadow: true}, []Instances{first, some, third}, []string{"5"}, []int{0, 1, 0}},
		"a socket":           {Merging{}, []Instances{first, other, third}, []string{"unix:///2", "4"}, []int{0, 1, 1}},
		"ports filled in":    {Merging{Fill: []Field{FieldPorts}}, []Instances{first, deaf, third}, []string{"1", "3", "4"}, []int{0, 2, 1}},
		"another field only": {Merging{Fill: []Field{FieldLabels}}, []Instances{first, deaf, third}, []string{"4"}, []int{0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, conflicts := c.rules.Merge(c.parts)
			var addresses []string
			for _, e := range got.Endpoints.All() {
				addresses = append(addresses, e.Address)
			}
			if !slices.Equal(addresses, c.want) {
				t.Errorf("its endpoints are %v, want %v", addresses, c.want)
			}
			if used := c.rules.Used(c.parts); !slices.Equal(used, c.used) {
				t.Errorf("in use are %v, want %v", used, c.used)
			}
			if len(c.parts[1].Endpoints.Items) < 2 {
				t.Error("the list of the source was changed")
			}
			if name != "a socket" && len(conflicts) == 0 {
				t.Error("nobody says what is left out")
			}
		})
	}
}

// It is told whose endpoints are in use.
func TestUsed(t *testing.T) {
	t.Parallel()
	dns := Service{Resolution: DNS}
	parts := []Instances{part(Service{}), part(Service{}, "1", "2"), part(dns, "a"), part(Service{}, "3")}
	for shadow, want := range map[bool][]int{false: {0, 2, 0, 1}, true: {0, 2, 0, 0}} {
		if d := cmp.Diff(want, Merging{Shadow: shadow}.Used(parts)); d != "" {
			t.Errorf("shadow %v (-want +got):\n%s", shadow, d)
		}
	}
}

// Addresses that were allocated for one declaration stay when another counts; where connections go
// to the address that the client chose, they are of no use.
func TestMergeKeepsAddresses(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("240.240.0.1"), netip.MustParseAddr("240.240.0.2"), netip.MustParseAddr("2001:2::2")
	first, other := Service{AutoAddresses: []netip.Addr{a, c}}, Service{AutoAddresses: []netip.Addr{b, c}}
	got, _ := Merging{}.Merge([]Instances{part(first, "1"), part(other, "2")})
	if want := []netip.Addr{a, c, b}; !slices.Equal(got.Service.AutoAddresses, want) {
		t.Errorf("got %+v, want %v", got.Service, want)
	}
	if len(first.AutoAddresses) != 2 {
		t.Error("the declaration was changed")
	}
	same := part(other, "1")
	if got, _ := (Merging{}).Merge([]Instances{same, part(Service{}, "2")}); got.Service != same.Service {
		t.Error("a service that gains nothing is another")
	}
	chosen := Service{Resolution: Passthrough}
	if got, _ := (Merging{}).Merge([]Instances{part(chosen), part(other, "2")}); len(got.Service.AutoAddresses) != 0 {
		t.Errorf("got %+v, want no address", got.Service)
	}
}

// What two declarations contradict one another in is listed, and what only one of them says is not.
func TestConflicts(t *testing.T) {
	t.Parallel()
	a := Service{Ports: []Port{{Number: 80, Name: "http", Protocol: HTTP}, {Number: 81, Name: "x"}, {Number: 82, Name: "y"}}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}
	b := Service{
		Ports:     []Port{{Number: 80, Name: "http", Protocol: TCP}, {Number: 81, Name: "x", Protocol: GRPC}, {Number: 82, Name: "z"}, {Number: 83}},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}, Resolution: DNS, External: true,
	}
	_, got := Merging{}.Merge([]Instances{part(a), part(b), part(a)})
	var texts []string
	for _, c := range got {
		texts = append(texts, c.Field+" "+c.Text)
	}
	want := []string{
		"resolution is DNS, and its endpoints are left out of those that are found by STATIC",
		"location is MESH_EXTERNAL, not MESH_INTERNAL",
		"addresses are [10.0.0.2/32], not [10.0.0.1/32]",
		"ports port 80 speaks TCP, not HTTP",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
}
