package ads_test

import (
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// names is a set of names.
func names(list ...string) map[string]struct{} {
	out := map[string]struct{}{}
	for _, n := range list {
		out[n] = struct{}{}
	}
	return out
}

// What a client asks for and answers, step by step; a request is told as "+subscribed -unsubscribed =claimed @nonce !words".
func TestInterest(t *testing.T) {
	t.Parallel()
	reply := func(nonce string) *ads.Reply { return &ads.Reply{TypeURL: clusterType, Nonce: nonce} }
	type step struct {
		do   func(i *ads.Interest)
		want []string
	}
	want := func(all bool, list ...string) func(*ads.Interest) {
		return func(i *ads.Interest) { i.Want(all, names(list...)) }
	}
	for name, c := range map[string]struct {
		claims map[string]string
		steps  []step
	}{
		"nothing wanted": {nil, []step{{want(false), nil}}},
		"everything, once": {nil, []step{
			{want(true), []string{"+*"}},
			{want(true), nil},
		}},
		"what is held is claimed once": {map[string]string{"a": "1", "b": "2"}, []step{
			{want(true), []string{"+* =a:1 =b:2"}},
			{want(true, "c"), []string{"+c"}},
		}},
		"claims wait for the first name": {map[string]string{"a": "1"}, []step{
			{want(false), nil},
			{want(false, "a"), []string{"+a =a:1"}},
		}},
		"only what changes is said": {nil, []step{
			{want(false, "a", "b"), []string{"+a +b"}},
			{want(false, "b", "c"), []string{"+c -a"}},
			{want(false, "b", "c"), nil},
			{want(true), []string{"+* -b -c"}},
			{want(false, "b"), []string{"+b -*"}},
		}},
		"wanted and dropped before it was said": {nil, []step{
			{want(false, "a"), []string{"+a"}},
			{func(i *ads.Interest) { i.Want(false, names("a", "b")); i.Want(false, names("a")) }, nil},
		}},
		"answers in order, and before news": {nil, []step{
			{want(true), []string{"+*"}},
			{func(i *ads.Interest) {
				i.Take(reply("1"))
				i.Take(reply("2"))
				i.Want(true, names("x"))
				i.Answer(nil)
				i.Answer(&ads.Rejection{Code: 13, Message: "bad"})
			}, []string{"@1", "@2 !bad", "+x"}},
		}},
		"no answer without a response": {nil, []step{
			{want(true), []string{"+*"}},
			{func(i *ads.Interest) { i.Answer(nil) }, nil},
		}},
		"once more": {nil, []step{
			{want(false, "a"), []string{"+a"}},
			{func(i *ads.Interest) { i.Again("a") }, []string{"+a"}},
			{want(true), []string{"+* -a"}},
			{func(i *ads.Interest) { i.Again("b") }, []string{"+b"}},
			{want(true), []string{"-b"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := ads.NewInterest(clusterType, c.claims)
			for n, s := range c.steps {
				s.do(i)
				var got []string
				for a := i.Next(); a != nil; a = i.Next() {
					got = append(got, told(t, a))
				}
				if !slices.Equal(got, s.want) {
					t.Errorf("step %d: got %q, want %q", n+1, got, s.want)
				}
			}
		})
	}
}

// told is an encoded request in the words of TestInterest.
func told(t *testing.T, a *ads.Ask) string {
	t.Helper()
	var m discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(a.Encode(), &m); err != nil {
		t.Fatal(err)
	}
	if m.TypeUrl != clusterType {
		t.Errorf("type %q", m.TypeUrl)
	}
	out := ""
	add := func(s string) { out += " " + s }
	for _, n := range m.ResourceNamesSubscribe {
		add("+" + n)
	}
	for _, n := range m.ResourceNamesUnsubscribe {
		add("-" + n)
	}
	for _, n := range slices.Sorted(func(yield func(string) bool) {
		for n := range m.InitialResourceVersions {
			if !yield(n) {
				return
			}
		}
	}) {
		add("=" + n + ":" + m.InitialResourceVersions[n])
	}
	if m.ResponseNonce != "" {
		add("@" + m.ResponseNonce)
	}
	if m.ErrorDetail != nil {
		add("!" + m.ErrorDetail.Message)
	}
	return out[1:]
}

// What is laid out by hand is what the protobuf library reads.
func TestAskEncode(t *testing.T) {
	t.Parallel()
	node, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	a := ads.Ask{TypeURL: clusterType, Node: append(node, 0x0a, 1, 'n'), Subscribe: []string{"*", "a"}, Unsubscribe: []string{"b"},
		Claims: map[string]string{"c": "1", "d": ""}, Nonce: "n1", Rejected: &ads.Rejection{Code: 3, Message: "bad"}}
	var got discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(a.Encode(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Node.GetId() != "n" {
		t.Errorf("node %v", got.Node)
	}
	got.Node = nil
	want := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType, ResourceNamesSubscribe: a.Subscribe, ResourceNamesUnsubscribe: a.Unsubscribe,
		InitialResourceVersions: a.Claims, ResponseNonce: "n1", ErrorDetail: &rpcstatus.Status{Code: 3, Message: "bad"}}
	if d := cmp.Diff(want, &got, protocmp.Transform()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	var state discoveryv3.DiscoveryRequest
	if err := proto.Unmarshal(ads.EncodeState(clusterType, []string{"a", "b"}, "n2", "v"), &state); err != nil {
		t.Fatal(err)
	}
	wantState := &discoveryv3.DiscoveryRequest{TypeUrl: clusterType, ResourceNames: []string{"a", "b"}, ResponseNonce: "n2", VersionInfo: "v"}
	if d := cmp.Diff(wantState, &state, protocmp.Transform()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A response is read as the protobuf library reads it.
func TestReadReply(t *testing.T) {
	t.Parallel()
	good := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType, Nonce: "n1", SystemVersionInfo: "s", RemovedResources: []string{"x", "y"},
		Resources: []*discoveryv3.Resource{
			{Name: "a", Version: "1", Aliases: []string{"b"}, Resource: &anypb.Any{TypeUrl: clusterType, Value: []byte("body")}},
			{Name: "c"},
		}}
	raw, err := proto.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ads.ReadReply(raw, ads.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := &ads.Reply{TypeURL: clusterType, Nonce: "n1", Removed: []string{"x", "y"},
		Items: []ads.Item{{Name: "a", Version: "1", TypeURL: clusterType, Body: []byte("body")}, {Name: "c"}}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(ads.Item{}, "Raw")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if again, err := ads.ReadReply(got.Encode(), ads.Limits{}); err != nil || !cmp.Equal(got, again) {
		t.Errorf("encoded and read again: %+v, %v; want %+v", again, err, got)
	}
	for name, m := range map[string]*discoveryv3.DeltaDiscoveryResponse{
		"no type":    {Nonce: "n"},
		"no nonce":   {TypeUrl: clusterType},
		"many names": {TypeUrl: clusterType, Nonce: "n", RemovedResources: []string{"a", "b", "c"}},
		"long name":  {TypeUrl: clusterType, Nonce: "n", RemovedResources: []string{"a long name"}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ads.ReadReply(raw, ads.Limits{Names: 2, NameBytes: 4}); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}

// No bytes make a reader of responses panic, or accept what it cannot have understood.
func FuzzReadReply(f *testing.F) {
	raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType, Nonce: "n1", RemovedResources: []string{"x"},
		Resources: []*discoveryv3.Resource{{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: clusterType, Value: []byte("body")}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ads.ReadReply(raw, ads.Limits{})
		if err != nil {
			return
		}
		var m discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			return // the library is stricter about fields that nobody reads here
		}
		if m.TypeUrl != r.TypeURL || m.Nonce != r.Nonce || len(m.Resources) != len(r.Items) || !slices.Equal(m.RemovedResources, r.Removed) {
			t.Errorf("read %+v, the library %v", r, &m)
		}
		for i, it := range r.Items {
			if m.Resources[i].Name != it.Name || m.Resources[i].Version != it.Version {
				t.Errorf("resource %d is %+v, the library has %v", i, it, m.Resources[i])
			}
		}
	})
}

// A request without some of its names is what the client would have sent without them.
func TestWithout(t *testing.T) {
	t.Parallel()
	rd := ads.NewReader(false, ads.Limits{})
	raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeType, ResourceNamesSubscribe: []string{"a", "b", "c"}, ResourceNamesUnsubscribe: []string{"b"}, ResponseNonce: "n"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := rd.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = rd.Without(r, func(name string) bool { return name == "b" }); err != nil {
		t.Fatal(err)
	}
	got, all := r.Subscribes()
	dropped, _ := r.Unsubscribes()
	if list := slices.Collect(got); !slices.Equal(list, []string{"a", "c"}) || all || r.Nonce != "n" || !slices.Equal(slices.Collect(dropped), []string{"b"}) {
		t.Errorf("it subscribes to %q (%v), nonce %q", list, all, r.Nonce)
	}
}

// How far a client is with a name, through the life of a resource.
func TestStanding(t *testing.T) {
	t.Parallel()
	s := ads.NewSubscription(routes(), false, ads.NewCache(), "s-")
	rd := ads.NewReader(false, ads.Limits{})
	to := set(routeType, "a=1", "b=1")
	hear := func(a ads.Ask) {
		t.Helper()
		a.TypeURL = routeType
		r, err := rd.Read(a.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Receive(r, to, ads.Limits{}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	next := func() string {
		if r := s.Next(to, ads.Waits{}, time.Time{}); r != nil {
			return r.Nonce
		}
		return ""
	}
	check := func(when, name string, want ads.Standing) {
		t.Helper()
		if got := s.Standing(name, to); got != want {
			t.Errorf("%s: %s is %d, want %d", when, name, got, want)
		}
	}
	check("before the first request", "a", ads.Unwanted)
	hear(ads.Ask{Subscribe: []string{"a", "x"}})
	check("asked for", "a", ads.Pending)
	check("asked for", "b", ads.Unwanted)
	nonce := next()
	check("on its way", "a", ads.Pending)
	if got := slices.Collect(s.Arrivals()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("arrivals %q", got)
	}
	hear(ads.Ask{Nonce: nonce})
	check("acknowledged", "a", ads.Held)
	check("acknowledged that there is none", "x", ads.Held)
	to = resource.Set{Shared: layer(routeType, "a=2", "b=1")}
	check("changed", "a", ads.Pending)
	nonce = next()
	hear(ads.Ask{Nonce: nonce, Rejected: &ads.Rejection{Message: "a is bad"}})
	check("rejected", "a", ads.Refused)
	to = set(routeType, "a=1", "b=1")
	check("back to the one before", "a", ads.Pending)
	hear(ads.Ask{Nonce: next()})
	check("and that is acknowledged", "a", ads.Held)
}
