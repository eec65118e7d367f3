package mcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// start is when the tests begin.
var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// gateways are the names of a kind over xDS.
func gateways(t *testing.T) []list {
	t.Helper()
	info, ok := config.Info(config.Gateway)
	if !ok {
		t.Fatal("no such kind")
	}
	return typeNames(info)
}

// gateway is a resource; a host of "" is refused.
func gateway(name, version, host string) item {
	body, err := anypb.New(&networking.Gateway{Selector: map[string]string{"a": "b"}, Servers: []*networking.Server{{
		Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{host}}}})
	if err != nil {
		panic(err)
	}
	raw, err := proto.Marshal(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: name, Version: version}, Body: body})
	if err != nil {
		panic(err)
	}
	return item{name: name, typeURL: resourceType, raw: raw}
}

// wrapped is a resource that is said to be of another type.
func wrapped(it item) item {
	it.typeURL = "type.googleapis.com/foo.Bar"
	return it
}

// namesOf are what stands outside of resources.
func namesOf(items []item) (out []string) {
	for _, it := range items {
		out = append(out, it.name)
	}
	return out
}

// resourceItem is one that is encoded as it stands.
func resourceItem(res *mcpv1.Resource) item {
	raw, err := proto.Marshal(res)
	if err != nil {
		panic(err)
	}
	return item{typeURL: resourceType, raw: raw}
}

func testContent() *content {
	return newContent(rules{source: "mcp:test", aliases: true, emptyAfter: time.Minute, most: 100})
}

// hosts shows what counts: "shop/web=a.test", with "!" when there are problems.
func hosts(c *content) string {
	var out []string
	for _, g := range c.groups() {
		u := c.update(g)
		text := g.String()
		if len(u.Items) > 0 {
			text = g.name + "=" + u.Items[0].Spec.(*networking.Gateway).Servers[0].Hosts[0]
		}
		if len(u.Problems) > 0 {
			text += "!"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// Each step says one thing at a time and what counts then.
func TestContent(t *testing.T) {
	t.Parallel()
	g := gateway
	type step struct {
		list    int // rank of the name
		stream  uint64
		word    word
		after   time.Duration // since the beginning
		lost    bool          // the stream ended before
		gone    time.Duration // how long before
		want    string
		refused int
		changed int
	}
	whole := func(items ...item) word { return word{whole: true, items: items} }
	first := func(items ...item) word { return word{whole: true, first: true, items: items} }
	more := func(items ...item) word { return word{items: items} }
	var many []item
	for i := range 101 {
		many = append(many, g(fmt.Sprintf("s/n%d", i), "1", "a.test"))
	}
	for name, steps := range map[string][]step{
		"a whole answer replaces": {
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 1, word: whole(g("s/b", "1", "b.test"), g("s/c", "1", "c.test")), want: "s/b=b.test s/c=c.test", changed: 2},
		},
		"one changed object costs one": {
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("s/b", "2", "c.test")), want: "s/a=a.test s/b=c.test", changed: 1},
		},
		"contents count, not what the server calls them": {
			{stream: 1, word: whole(g("s/a", "same", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 1, word: whole(g("s/a", "same", "b.test")), want: "s/a=b.test", changed: 1},
		},
		"a bad object keeps its last good version, and the good ones are taken": {
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 1, word: whole(g("s/a", "2", ""), g("s/b", "2", "c.test")), want: "s/a=a.test! s/b=c.test", refused: 1, changed: 2},
			{stream: 1, word: whole(g("s/a", "2", ""), g("s/b", "2", "c.test")), want: "s/a=a.test! s/b=c.test", refused: 1},
			{stream: 1, word: whole(g("s/a", "3", "d.test"), g("s/b", "2", "c.test")), want: "s/a=d.test s/b=c.test", changed: 1},
		},
		"a bad object that was never good is a problem alone": {
			{stream: 1, word: whole(g("s/a", "1", "")), want: "Gateway s/a!", refused: 1, changed: 1},
			{stream: 1, word: whole(), want: "", changed: 1},
		},
		"while a name cannot be read nothing is believed to be gone": {
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("no-slash", "1", "b.test")),
				want: "list networking.istio.io/v1/Gateway! s/a=a.test s/b=b.test", refused: 1, changed: 1},
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 2},
		},
		"twice in one answer is refused, and the last good version stays": {
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 1, word: whole(g("s/a", "2", "b.test"), g("s/a", "3", "c.test")), want: "s/a=a.test!", refused: 1, changed: 1},
		},
		"differences": {
			{stream: 1, word: first(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 1, word: more(g("s/b", "2", "c.test")), want: "s/a=a.test s/b=c.test", changed: 1},
			{stream: 1, word: word{removed: []string{"s/a", "s/x"}}, want: "s/b=c.test", changed: 1},
		},
		"a server that takes everything back on the stream on which it listed it is believed": {
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 1, word: whole(), want: "", changed: 1},
		},
		"and so is one that removes by name": {
			{stream: 1, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 2, lost: true, word: word{whole: true, first: true, removed: []string{"s/a"}}, want: "", changed: 1},
		},
		"a server that comes back with nothing is believed after a while": {
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 2, lost: true, word: whole(), want: "s/a=a.test"},
			{stream: 2, word: whole(), after: 59 * time.Second, want: "s/a=a.test"},
			{stream: 2, word: whole(), after: 61 * time.Second, want: ""},
		},
		"a while that connections interrupt": {
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 2, lost: true, word: whole(), want: "s/a=a.test"},
			{stream: 3, lost: true, word: whole(), after: 40 * time.Second, want: "s/a=a.test"},
			{stream: 3, word: whole(), after: 59 * time.Second, want: "s/a=a.test"},
			{stream: 3, word: whole(), after: 61 * time.Second, want: ""},
		},
		"a while that outages interrupt": {
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 2, lost: true, word: whole(), want: "s/a=a.test"},
			{stream: 3, lost: true, gone: 10 * time.Second, word: whole(), after: 50 * time.Second, want: "s/a=a.test"}, // 40s, less 10s
			{stream: 4, lost: true, gone: time.Hour, word: whole(), after: time.Hour + 60*time.Second, want: "s/a=a.test"},
			{stream: 4, word: whole(), after: time.Hour + 119*time.Second, want: "s/a=a.test"},
			{stream: 4, word: whole(), after: time.Hour + 121*time.Second, want: ""},
		},
		"a while that objects interrupt": {
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 2, lost: true, word: whole(), want: "s/a=a.test s/b=b.test"},
			{stream: 3, lost: true, word: whole(g("s/a", "1", "a.test")), after: 40 * time.Second, want: "s/a=a.test", changed: 1},
			{stream: 4, lost: true, word: whole(), after: 50 * time.Second, want: "s/a=a.test"},
			{stream: 4, word: whole(), after: 109 * time.Second, want: "s/a=a.test"},
			{stream: 4, word: whole(), after: 111 * time.Second, want: ""},
		},
		"a server that comes back with nothing and then finds its objects": {
			{stream: 1, word: whole(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 2, lost: true, word: whole(), want: "s/a=a.test s/b=b.test"},
			{stream: 2, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 2},
		},
		"a first answer in parts": {
			{stream: 1, word: first(g("s/a", "1", "a.test"), g("s/b", "1", "b.test"), g("s/c", "1", "c.test")), want: "s/a=a.test s/b=b.test s/c=c.test", changed: 3},
			{stream: 2, lost: true, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test s/b=b.test s/c=c.test"},
			{stream: 2, word: more(g("s/b", "1", "b.test")), after: time.Second, want: "s/a=a.test s/b=b.test s/c=c.test", changed: 1},
			{stream: 2, word: more(), after: 60 * time.Second, want: "s/a=a.test s/b=b.test s/c=c.test"},
			{stream: 2, word: more(), after: 62 * time.Second, want: "s/a=a.test s/b=b.test"},
		},
		"nothing, and then parts": {
			{stream: 1, word: first(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 2, lost: true, word: first(), want: "s/a=a.test s/b=b.test"},
			{stream: 2, word: more(g("s/b", "2", "c.test")), after: time.Second, want: "s/a=a.test s/b=c.test", changed: 1},
			{stream: 2, word: more(), after: 62 * time.Second, want: "s/b=c.test"},
		},
		"twice, and then once again": {
			{stream: 1, word: whole(g("s/a", "2", "b.test"), g("s/a", "3", "c.test")), want: "Gateway s/a!", refused: 1, changed: 1},
			{stream: 1, word: whole(g("s/a", "3", "c.test")), want: "s/a=c.test", changed: 1},
		},
		"a first answer whose parts take long": {
			{stream: 1, word: first(g("s/a", "1", "a.test"), g("s/b", "1", "b.test"), g("s/c", "1", "c.test")), want: "s/a=a.test s/b=b.test s/c=c.test", changed: 3},
			{stream: 2, lost: true, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test s/b=b.test s/c=c.test"},
			{stream: 2, word: more(g("s/b", "1", "b.test")), after: 40 * time.Second, want: "s/a=a.test s/b=b.test s/c=c.test", changed: 1},
			{stream: 2, word: more(g("s/c", "1", "c.test")), after: 90 * time.Second, want: "s/a=a.test s/b=b.test s/c=c.test", changed: 1},
			{stream: 2, word: more(), after: time.Hour, want: "s/a=a.test s/b=b.test s/c=c.test"},
		},
		"a part of a first answer that cannot be read": {
			{stream: 1, word: first(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 2, lost: true, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test s/b=b.test"},
			{stream: 2, word: more(g("no-slash", "1", "b.test")), after: time.Second, want: "list networking.istio.io/v1/Gateway! s/a=a.test s/b=b.test", refused: 1, changed: 2},
			{stream: 2, word: more(g("s/a", "1", "a.test")), after: time.Minute, want: "list networking.istio.io/v1/Gateway! s/a=a.test s/b=b.test", changed: 1},
			{stream: 2, word: word{removed: []string{"no-slash"}}, after: time.Minute, want: "s/a=a.test s/b=b.test", changed: 1},
		},
		"nothing, and then too much": {
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 2, lost: true, word: whole(), want: "s/a=a.test"},
			{stream: 2, word: whole(many...), want: "list networking.istio.io/v1/Gateway! s/a=a.test", refused: 1, changed: 2},
			{stream: 2, word: more(), after: time.Hour, want: "list networking.istio.io/v1/Gateway! s/a=a.test", changed: 1},
			{stream: 2, word: whole(g("s/a", "1", "a.test")), after: time.Hour, want: "s/a=a.test", changed: 1},
		},
		"too much, until it is sent again or gone": {
			{stream: 1, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 1, word: more(many...), want: "list networking.istio.io/v1/Gateway! s/a=a.test", refused: 1, changed: 1},
			{stream: 1, word: more(many[:2]...), want: "list networking.istio.io/v1/Gateway! s/a=a.test s/n0=a.test s/n1=a.test", changed: 3},
			{stream: 1, word: word{removed: namesOf(many[2:])}, want: "s/a=a.test s/n0=a.test s/n1=a.test", changed: 1},
		},
		"what cannot be read stays a problem of its object, until that is sent well": {
			{stream: 1, word: first(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 1, word: more(wrapped(g("s/a", "2", "new.test"))), want: "s/a=a.test! s/b=b.test", refused: 1, changed: 1},
			{stream: 1, word: more(g("s/b", "2", "c.test")), want: "s/a=a.test! s/b=c.test", changed: 1},
			{stream: 1, word: more(wrapped(g("s/a", "2", "new.test"))), want: "s/a=a.test! s/b=c.test", refused: 1},
			{stream: 1, word: more(g("s/a", "2", "new.test")), want: "s/a=new.test s/b=c.test", changed: 1},
		},
		"or removed": {
			{stream: 1, word: first(g("s/a", "1", "a.test"), g("s/b", "1", "b.test")), want: "s/a=a.test s/b=b.test", changed: 2},
			{stream: 1, word: more(item{name: "s/a", typeURL: resourceType, raw: []byte{0xff}}, item{name: "s/c", typeURL: resourceType, raw: []byte{0xff}}), want: "s/a=a.test! s/b=b.test Gateway s/c!", refused: 2, changed: 2},
			{stream: 1, word: more(g("s/b", "2", "c.test")), want: "s/a=a.test! s/b=c.test Gateway s/c!", changed: 1},
			{stream: 1, word: word{removed: []string{"s/a", "s/c"}}, want: "s/b=c.test", changed: 2},
		},
		"another type around the same bytes": {
			{stream: 1, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 1, word: more(wrapped(g("s/a", "1", "a.test"))), want: "s/a=a.test!", refused: 1, changed: 1},
			{stream: 1, word: more(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
		},
		"what is no name stays a problem of the list, until that is sent well or removed": {
			{stream: 1, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 1, word: more(g("no-slash", "1", "b.test"), g("none", "1", "b.test")), want: "list networking.istio.io/v1/Gateway! s/a=a.test", refused: 2, changed: 1},
			{stream: 1, word: more(g("s/a", "2", "c.test")), want: "list networking.istio.io/v1/Gateway! s/a=c.test", changed: 2},
			{stream: 1, word: word{removed: []string{"no-slash"}}, want: "list networking.istio.io/v1/Gateway! s/a=c.test", changed: 1},
			{stream: 1, word: word{removed: []string{"none"}}, want: "s/a=c.test", changed: 1},
		},
		"what has no name at all stays one until all is said again": {
			{stream: 1, word: first(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 1, word: more(item{typeURL: resourceType, raw: []byte{0xff}}), want: "list networking.istio.io/v1/Gateway! s/a=a.test", refused: 1, changed: 1},
			{stream: 1, word: more(g("s/a", "2", "c.test")), want: "list networking.istio.io/v1/Gateway! s/a=c.test", changed: 2},
			{stream: 2, lost: true, word: first(g("s/a", "2", "c.test")), want: "s/a=c.test", changed: 1},
		},
		"nonsense, and then nothing": {
			{stream: 1, word: whole(g("s/a", "1", "a.test")), want: "s/a=a.test", changed: 1},
			{stream: 2, lost: true, word: whole(g("no-slash", "1", "b.test")), want: "list networking.istio.io/v1/Gateway! s/a=a.test", refused: 1, changed: 1},
			{stream: 2, word: whole(), want: "s/a=a.test", changed: 1},
			{stream: 2, word: whole(), after: 61 * time.Second, want: ""},
		},
		"a server that comes to know a newer name": {
			{stream: 1, list: 1, word: whole(g("s/a", "1", "old.test"), g("s/b", "1", "old.test")), want: "s/a=old.test s/b=old.test", changed: 2},
			{stream: 2, lost: true, word: whole(g("s/a", "2", "new.test")), want: "s/a=new.test s/b=old.test", changed: 1},
			{stream: 2, list: 1, word: whole(), want: "s/a=new.test s/b=old.test"},
			{stream: 2, word: whole(g("s/a", "2", "new.test")), after: 61 * time.Second, want: "s/a=new.test"},
			{stream: 2, word: whole(), after: 62 * time.Second, want: "", changed: 1},
		},
		"the newest name of a kind counts, and an older one stands in": {
			{stream: 1, list: 1, word: whole(g("s/a", "1", "old.test")), want: "s/a=old.test", changed: 1},
			{stream: 1, list: 0, word: whole(g("s/a", "1", "new.test")), want: "s/a=new.test", changed: 1},
			{stream: 1, list: 0, word: whole(), want: "s/a=old.test", changed: 1},
		},
		"what is leaving under one name counts less than what stays under another": {
			{stream: 1, list: 0, word: whole(g("s/a", "1", "new.test")), want: "s/a=new.test", changed: 1},
			{stream: 2, list: 0, lost: true, word: whole(), want: "s/a=new.test"},
			{stream: 2, list: 1, word: whole(g("s/a", "1", "old.test")), want: "s/a=old.test", changed: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testContent()
			for i, s := range steps {
				now := start.Add(s.after)
				if s.lost {
					c.lost(now.Add(-s.gone))
				}
				c.settled(now)
				v := c.take(gateways(t)[s.list], &s.word, s.stream, now)
				if got := hosts(c); got != s.want || v.count != s.refused || len(v.changed) != s.changed {
					t.Errorf("step %d: got %q, refused %d, changed %v, want %q, %d, %d", i, got, v.count, v.changed, s.want, s.refused, s.changed)
				}
				if (v.refusal() != "") != (s.refused > 0) {
					t.Errorf("step %d: refusal %q", i, v.refusal())
				}
			}
		})
	}
}

// A server that has lost everything is not believed, however long it stands by that; once it lists anything, what is missing
// has to be missing for a while from then on.
func TestContentHollow(t *testing.T) {
	t.Parallel()
	c := newContent(rules{source: "mcp:test", keep: true, emptyAfter: time.Minute, most: 10})
	one, other := gateways(t)[0], gateways(t)[1] // another name stands for another kind
	step := func(l list, stream uint64, after time.Duration, want string, items ...item) {
		t.Helper()
		c.settled(start.Add(after))
		c.take(l, &word{whole: true, items: items}, stream, start.Add(after))
		if got := hosts(c); got != want {
			t.Errorf("after %s: got %q, want %q", after, got, want)
		}
	}
	const both = "s/a=a.test s/b=b.test"
	step(one, 1, 0, "s/a=a.test", gateway("s/a", "1", "a.test"))
	step(other, 1, 0, both, gateway("s/b", "1", "b.test"))
	c.lost(start)
	step(one, 2, 0, both)
	step(other, 2, 0, both)
	step(one, 2, time.Hour, both)
	text, _ := c.doubts()
	if !strings.Contains(text, "the 2 that it listed before stay until it lists one again") || !strings.Contains(text, "emptied: believe") || !c.due().IsZero() {
		t.Errorf("it says %q, due at %s", text, c.due())
	}
	step(other, 2, time.Hour, both, gateway("s/b", "1", "b.test"))
	step(other, 2, time.Hour+59*time.Second, both, gateway("s/b", "1", "b.test"))
	step(other, 2, time.Hour+61*time.Second, "s/b=b.test", gateway("s/b", "1", "b.test"))
	c.lost(start.Add(2 * time.Hour))
	step(one, 3, 2*time.Hour, "s/b=b.test")
	step(other, 3, 2*time.Hour, "s/b=b.test")
	step(other, 3, 3*time.Hour, "s/b=b.test")
	c.rules.keep = false
	step(other, 3, 3*time.Hour, "")
}

// What a server that lists nothing at all stands by counts for nothing later, when it lists something again.
func TestContentHollowTime(t *testing.T) {
	t.Parallel()
	c := newContent(rules{source: "mcp:test", keep: true, emptyAfter: time.Minute, most: 10})
	one, other := gateways(t)[0], gateways(t)[1] // another name stands for another kind
	say := func(l list, stream uint64, after time.Duration, items ...item) {
		c.take(l, &word{whole: true, items: items}, stream, start.Add(after))
	}
	say(one, 1, 0, gateway("s/a", "1", "a.test"))
	say(other, 1, 0, gateway("s/b", "1", "b.test"))
	c.lost(start)
	say(one, 2, 0)
	say(other, 2, 0)
	c.lost(start.Add(time.Hour))
	say(one, 3, time.Hour)
	say(other, 3, time.Hour, gateway("s/b", "1", "b.test"))
	if c.settled(start.Add(time.Hour + 59*time.Second)); hosts(c) != "s/a=a.test s/b=b.test" {
		t.Errorf("soon it holds %s", hosts(c))
	}
	if c.settled(start.Add(time.Hour + 61*time.Second)); hosts(c) != "s/b=b.test" {
		t.Errorf("later it holds %s", hosts(c))
	}
}

// What was said before the start may stand under an older name of its kind: that is no server that lost it.
func TestContentOlderServer(t *testing.T) {
	t.Parallel()
	c, names := testContent(), gateways(t)
	for _, name := range []string{"s/a", "s/b"} {
		u := keptGateway(t, name)
		c.remember(names[0], u.Items[0], u)
	}
	c.take(names[0], &word{whole: true}, 1, start)
	c.take(names[1], &word{whole: true, items: []item{gateway("s/a", "1", "a.test")}}, 1, start)
	if text, _ := c.doubts(); text != "" || hosts(c) != "s/a=a.test s/b=a.test" {
		t.Errorf("it doubts %q, and holds %s", text, hosts(c))
	}
	if c.settled(start.Add(61 * time.Second)); hosts(c) != "s/a=a.test" {
		t.Errorf("later it holds %s", hosts(c))
	}
}

// An object that is resent with other words around it keeps its pointer, and so costs nothing further on.
func TestContentKeepsPointers(t *testing.T) {
	t.Parallel()
	c, l := testContent(), gateways(t)[0]
	c.take(l, &word{whole: true, items: []item{gateway("s/a", "1", "a.test")}}, 1, start)
	was := c.update(c.groups()[0]).Items[0]
	c.take(l, &word{whole: true, items: []item{gateway("s/a", "2", "a.test")}}, 1, start)
	v := c.take(l, &word{whole: true, items: []item{gateway("s/a", "3", "a.test")}}, 1, start)
	if now := c.update(c.groups()[0]).Items[0]; now != was || len(v.changed) != 0 {
		t.Errorf("another pointer for an equal object, or %v changed", v.changed)
	}
}

// A refusal names the object and what is wrong with it.
func TestRefusalNames(t *testing.T) {
	t.Parallel()
	c := testContent()
	v := c.take(gateways(t)[0], &word{whole: true, items: []item{gateway("s/good", "1", "a.test"), gateway("s/bad", "1", "")}}, 1, start)
	if text := v.refusal(); !strings.Contains(text, "refused 1: Gateway s/bad spec.servers[0].hosts[0]") {
		t.Errorf("refusal is %q", text)
	}
	u := c.update(group{kind: config.Gateway, name: "s/bad"})
	if len(u.Problems) != 1 || u.Problems[0].Stale {
		t.Errorf("problems %v: nothing older is in use", u.Problems)
	}
}

// Of an object with many mistakes only the first ones are remembered.
func TestContentManyProblems(t *testing.T) {
	t.Parallel()
	g := &networking.Gateway{Selector: map[string]string{"a": "b"}}
	for i := range 10 * maxRefused {
		g.Servers = append(g.Servers, &networking.Server{Port: &networking.Port{Number: uint32(i + 1), Name: fmt.Sprint("http", i), Protocol: "HTTP"}, Hosts: []string{""}})
	}
	body, err := anypb.New(g)
	if err != nil {
		t.Fatal(err)
	}
	c := testContent()
	for range 2 {
		v := c.take(gateways(t)[0], &word{whole: true, items: []item{resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "s/a"}, Body: body})}}, 1, start)
		if n := len(c.update(group{kind: config.Gateway, name: "s/a"}).Problems); n != maxRefused || v.count != 1 {
			t.Errorf("%d problems are remembered, want %d; %d refused, want 1", n, maxRefused, v.count)
		}
	}
}

// An answer that would make the content too large is refused whole, and what was there stays.
func TestContentLimit(t *testing.T) {
	t.Parallel()
	c, l := testContent(), gateways(t)[0]
	c.take(l, &word{whole: true, items: []item{gateway("s/a", "1", "a.test")}}, 1, start)
	var many []item
	for i := range 101 {
		many = append(many, gateway(fmt.Sprintf("s/n%d", i), "1", "a.test"))
	}
	v := c.take(l, &word{whole: true, items: many}, 1, start)
	if got := hosts(c); got != "list networking.istio.io/v1/Gateway! s/a=a.test" || !strings.Contains(v.refusal(), "maxObjects") {
		t.Errorf("got %q, refusal %q", got, v.refusal())
	}
	if v := c.take(l, &word{whole: true, items: many[:100]}, 1, start); v.count != 0 || c.total != 100 {
		t.Errorf("refused %d, holds %d", v.count, c.total)
	}
}

// What all objects were read from is bounded, over all kinds and all answers.
func TestContentBytes(t *testing.T) {
	t.Parallel()
	c, l := testContent(), gateways(t)[0]
	one := gateway("s/a", "1", "a.test")
	c.rules.bytes = 4 * len(one.raw)
	take := func(whole bool, items ...item) int {
		v := c.take(l, &word{whole: whole, items: items}, 1, start)
		if v.count > 0 && !strings.Contains(v.refusal(), "maxMessage") {
			t.Errorf("refusal %q", v.refusal())
		}
		return v.count
	}
	for i, step := range []struct {
		whole   bool
		items   []item
		refused int
	}{
		{true, []item{one, gateway("s/b", "1", "a.test"), gateway("s/c", "1", "a.test")}, 0},
		{false, []item{gateway("s/a", "2", "b.test"), gateway("s/b", "2", "b.test")}, 0}, // in the place of others
		{false, []item{gateway("s/d", "1", "a.test")}, 0},
		{false, []item{gateway("s/e", "1", "a.test")}, 1},
		{true, []item{gateway("s/e", "1", "a.test"), gateway("s/f", "1", "a.test")}, 0}, // instead of all
		{false, []item{gateway("s/a", "1", "a.test"), gateway("s/b", "1", "a.test")}, 0},
	} {
		if n := take(step.whole, step.items...); n != step.refused {
			t.Errorf("step %d: %d refused, want %d", i, n, step.refused)
		}
	}
	take(true)
	if c.bytes != 0 || c.total != 0 {
		t.Errorf("nothing has %d bytes and %d objects", c.bytes, c.total)
	}
}

// Objects of another revision are left out, and are no problem.
func TestContentRevision(t *testing.T) {
	t.Parallel()
	c := newContent(rules{source: "mcp:test", revision: "canary", most: 10})
	it := gateway("s/a", "1", "a.test")
	res := &mcpv1.Resource{}
	if err := proto.Unmarshal(it.raw, res); err != nil {
		t.Fatal(err)
	}
	for rev, want := range map[string]int{"canary": 1, "stable": 0} {
		res.Metadata.Labels = map[string]string{revisionLabel: rev}
		v := c.take(gateways(t)[0], &word{whole: true, items: []item{resourceItem(res)}}, 1, start)
		if u := c.update(group{kind: config.Gateway, name: "s/a"}); len(u.Items) != want || v.count != 0 || len(u.Problems) != 0 {
			t.Errorf("%s: %d objects, want %d; %v", rev, len(u.Items), want, u.Problems)
		}
	}
}

// What is not the message that it should be is refused by name.
func TestObjectRefused(t *testing.T) {
	t.Parallel()
	good := gateway("s/a", "1", "a.test")
	other, err := anypb.New(&networking.Sidecar{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		it   item
		want string
	}{
		"type":          {item{typeURL: "type.googleapis.com/other", raw: good.raw}, "it is a type.googleapis.com/other"},
		"bytes":         {item{typeURL: resourceType, raw: []byte{0xff}}, "cannot be decoded"},
		"no name":       {resourceItem(&mcpv1.Resource{}), "namespace/name"},
		"three parts":   {resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "a/b/c"}}), "namespace/name"},
		"other outside": {item{name: "s/b", typeURL: resourceType, raw: good.raw}, `called "s/b" outside`},
		"no body":       {resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "s/a"}}), "body: it is missing"},
		"other body":    {resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "s/a"}, Body: other}), "not a Gateway"},
		"broken body": {resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "s/a"},
			Body: &anypb.Any{TypeUrl: "type.googleapis.com/istio.networking.v1alpha3.Gateway", Value: []byte{0xff}}}), "body: it cannot be decoded"},
		"bad name":    {resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "S/A!"}, Body: other}), "not a Gateway"},
		"odd letters": {resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "s/a\x1b[2J"}}), "namespace/name"},
		"too large":   {resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "s/a", Annotations: map[string]string{"a": strings.Repeat("x", maxResource)}}}), "more than 5242880"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := testContent()
			v := content.take(gateways(t)[0], &word{whole: true, items: []item{c.it}}, 1, start)
			if v.count != 1 || !strings.Contains(v.refusal(), c.want) {
				t.Errorf("refused %d: %q, want %q", v.count, v.refusal(), c.want)
			}
		})
	}
}

// All versions of a kind are one message, and no other kind is.
func TestIsBody(t *testing.T) {
	t.Parallel()
	info, _ := config.Info(config.Gateway)
	for url, want := range map[string]bool{
		"type.googleapis.com/istio.networking.v1alpha3.Gateway": true,
		"type.googleapis.com/istio.networking.v1.Gateway":       true,
		"type.googleapis.com/istio.networking.v1alpha3.Sidecar": false,
		"type.googleapis.com/istio.security.v1.Gateway":         false,
		"istio.networking.v1.Gateway":                           false,
		"":                                                      false,
	} {
		if got := isBody(info, url); got != want {
			t.Errorf("%q: got %v, want %v", url, got, want)
		}
	}
}

// Each kind of the older protocol's last release has its collection.
func TestCollections(t *testing.T) {
	t.Parallel()
	usual, unknown := collectionsOf(nil)
	var names []string
	for _, l := range usual {
		names = append(names, l.name)
	}
	slices.Sort(names)
	want := []string{}
	for _, n := range []string{"destinationrules", "envoyfilters", "gateways", "serviceentries", "sidecars", "virtualservices", "workloadentries", "workloadgroups"} {
		want = append(want, "istio/networking/v1alpha3/"+n)
	}
	for _, n := range []string{"authorizationpolicies", "peerauthentications", "requestauthentications"} {
		want = append(want, "istio/security/v1beta1/"+n)
	}
	if !slices.Equal(names, want) || unknown != "" {
		t.Errorf("got %v, want %v", names, want)
	}
}

// Of many resources that cannot be told from others the first ones are named, and that there are more, for as long as they may be.
func TestContentManyOddities(t *testing.T) {
	t.Parallel()
	c, l := testContent(), gateways(t)[0]
	c.take(l, &word{whole: true, first: true}, 1, start)
	for i := range byte(2 * maxStrange) {
		c.take(l, &word{items: []item{{typeURL: resourceType, raw: []byte{0xff, i}}}}, 1, start)
	}
	u := c.update(group{kind: config.Gateway, name: l.name, beside: true})
	if n := len(u.Problems); n != maxStrange+1 || !strings.Contains(u.Problems[maxStrange].Text, "more resources were refused") {
		t.Errorf("%d problems: %v", n, u.Problems)
	}
}
