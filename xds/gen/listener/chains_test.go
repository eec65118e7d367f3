package listener

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// No two chains of a set take one connection: what an earlier one takes, later ones do not have.
func TestChainSetIsDisjoint(t *testing.T) {
	t.Parallel()
	type add struct {
		name    string
		subnets []string
		sni     []string
		http    bool
	}
	tests := []struct {
		name string
		add  []add
		want []string
	}{
		{"two of everything", []add{{name: "a"}, {name: "b"}}, []string{"all-> a"}},
		{"everything and HTTP", []add{{name: "a", http: true}, {name: "b"}, {name: "c", http: true}}, []string{"http -> a", "all-> b"}},
		{"all names is no condition", []add{{name: "a", sni: []string{"x", "*"}}, {name: "b"}}, []string{"all-> a"}},
		{"all addresses is no condition", []add{{name: "a", subnets: []string{"0.0.0.0/0"}}, {name: "b", subnets: []string{"::/0"}}}, []string{"all-> a"}},
		{"names repeat", []add{{name: "a", sni: []string{"x", "x", "b"}}, {name: "b", sni: []string{"b", "c"}}}, []string{"sni [b x] -> a", "sni [c] -> b"}},
		{"subnets are masked", []add{{name: "a", subnets: []string{"10.0.0.1/8"}}, {name: "b", subnets: []string{"10.9.9.9/8"}}}, []string{"10.0.0.0/8 -> a"}},
		{"a name that is taken for one subnet only",
			[]add{{name: "a", subnets: []string{"10.0.0.0/8"}, sni: []string{"x"}},
				{name: "b", subnets: []string{"10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"}, sni: []string{"x", "y"}}},
			[]string{"10.0.0.0/8 sni [x] -> a", "10.0.0.0/8 sni [y] -> b",
				"11.0.0.0/8 sni [x y] -> b", "12.0.0.0/8 sni [x y] -> b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := newChainSet(&chainLists{})
			for _, a := range tt.add {
				var subnets []netip.Prefix
				for _, s := range a.subnets {
					subnets = append(subnets, netip.MustParsePrefix(s))
				}
				set.add(chainSpec{match: chainMatch{plainHTTP: a.http}, tcp: tcpSpec{cluster: a.name}}, subnets, a.sni)
			}
			var got []string
			for _, c := range set.list().Items() {
				got = append(got, describeChain(c))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("chains (-want +got):\n%s", d)
			}
		})
	}
}

func describeChain(c chainSpec) string {
	var s string
	if c.match.all() {
		s = "all"
	}
	if c.match.subnet.IsValid() {
		s += c.match.subnet.String() + " "
	}
	if c.match.sni != nil {
		s += fmt.Sprintf("sni %v ", c.match.sni.Items())
	}
	if c.match.plainHTTP {
		s += "http "
	}
	return s + "-> " + c.tcp.cluster
}
