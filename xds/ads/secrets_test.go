package ads_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// judge is Envoy where it takes in secrets: it judges each content once, and accepts without using
// it what it refused.
type judge struct {
	*peer
	rng     *rand.Rand
	names   map[string]bool
	judged  map[string]string // the last content of each name
	uses    map[string]string
	version string
	nonce   string
	inbox   []*response
	want    map[string]string
	to      resource.Set
	asked   bool
	log     []string
}

func newJudge(t *testing.T, states bool, seed uint64, names int) *judge {
	j := &judge{
		peer: newPeer(t, secrets(), states), rng: rand.New(rand.NewPCG(seed, 7)),
		names: map[string]bool{"n00": true}, judged: map[string]string{}, uses: map[string]string{}, want: map[string]string{},
	}
	for range names / 2 {
		j.names[j.pick(names)] = true
	}
	return j
}

func (j *judge) pick(names int) string { return fmt.Sprintf("n%02d", j.rng.IntN(names)) }

func (j *judge) note(format string, args ...any) { j.log = append(j.log, fmt.Sprintf(format, args...)) }

func (j *judge) fatalf(format string, args ...any) {
	j.t.Helper()
	j.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(j.log, "\n"))
}

// publish changes some of what there is.
func (j *judge) publish(names int) {
	for range 1 + j.rng.IntN(6) {
		n := j.pick(names)
		switch j.rng.IntN(5) {
		case 0:
			delete(j.want, n)
		case 1:
			j.want[n] = fmt.Sprint("bad", j.rng.IntN(3))
		default:
			j.want[n] = fmt.Sprint("v", j.rng.IntN(4))
		}
	}
	var shared, own []string
	for _, n := range slices.Sorted(maps.Keys(j.want)) {
		if item := n + "=" + j.want[n]; j.rng.IntN(3) == 0 {
			own = append(own, item)
		} else {
			shared = append(shared, item)
		}
	}
	j.to = set(secretType, shared...)
	if len(own) > 0 {
		j.to.Own = layer(secretType, own...)
	}
	j.note("to %v own %v", shared, own)
}

func (j *judge) list() []string { return slices.Sorted(maps.Keys(j.names)) }

// ask sends the first request.
func (j *judge) ask() {
	j.asked = true
	j.note("ask %v", j.list())
	if j.states {
		j.state(j.to, &discoveryv3.DiscoveryRequest{ResourceNames: j.list()})
		return
	}
	j.delta(j.to, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: j.list()})
}

// pull takes a response from the subscription; false: there is none.
func (j *judge) pull() bool {
	r := j.next(j.to)
	if r == nil {
		return false
	}
	if len(r.items) > 1 {
		j.fatalf("several in one response: %s", r)
	}
	j.note("sent %s", r)
	j.inbox = append(j.inbox, r)
	return true
}

// take answers the oldest response.
func (j *judge) take() bool {
	if len(j.inbox) == 0 {
		return false
	}
	r := j.inbox[0]
	j.inbox = j.inbox[1:]
	words := ""
	for n, content := range r.items {
		if !j.names[n] || j.judged[n] == content {
			continue
		}
		j.judged[n] = content
		if strings.HasPrefix(content, "bad") {
			words = n + " cannot be used"
		} else {
			j.uses[n] = content
		}
	}
	if words == "" {
		for _, n := range r.removed {
			delete(j.judged, n)
			delete(j.uses, n)
		}
		j.version = r.version
	}
	j.nonce = r.nonce
	j.note("answer %s %q", r, words)
	state := &discoveryv3.DiscoveryRequest{VersionInfo: j.version, ResponseNonce: r.nonce, ResourceNames: j.list()}
	delta := &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.nonce}
	if words != "" {
		state.ErrorDetail, delta.ErrorDetail = rejection(words), rejection(words)
	}
	if j.states {
		j.state(j.to, state)
	} else {
		j.delta(j.to, delta)
	}
	return true
}

// resubscribe drops some names and asks for others.
func (j *judge) resubscribe(names int) {
	m := &discoveryv3.DeltaDiscoveryRequest{}
	for range 1 + j.rng.IntN(3) {
		n := j.pick(names)
		switch {
		case slices.Contains(m.ResourceNamesSubscribe, n), slices.Contains(m.ResourceNamesUnsubscribe, n):
		case !j.names[n]:
			j.names[n] = true
			m.ResourceNamesSubscribe = append(m.ResourceNamesSubscribe, n)
		case len(j.names) > 1:
			delete(j.names, n)
			delete(j.judged, n)
			delete(j.uses, n)
			m.ResourceNamesUnsubscribe = append(m.ResourceNamesUnsubscribe, n)
		}
	}
	j.note("and %v without %v", m.ResourceNamesSubscribe, m.ResourceNamesUnsubscribe)
	if j.states {
		j.state(j.to, &discoveryv3.DiscoveryRequest{VersionInfo: j.version, ResponseNonce: j.nonce,
			ResourceNames: j.list()})
		return
	}
	j.delta(j.to, m)
}

// settle answers until there is nothing more to say. Then the client uses every good secret, and
// what it cannot use is known by name.
func (j *judge) settle() {
	j.t.Helper()
	if !j.asked {
		j.ask()
	}
	for i := 0; ; i++ {
		pulled, taken := j.pull(), j.take()
		if !pulled && !taken {
			break
		}
		if i > 3000 {
			j.fatalf("it never ends")
		}
	}
	refused := rejectedNames(j.sub)
	for n, content := range j.want {
		bad := strings.HasPrefix(content, "bad")
		switch {
		case !j.names[n]:
		case !bad && j.uses[n] != content:
			j.fatalf("of %s it uses %q, want %q", n, j.uses[n], content)
		case bad != slices.Contains(refused, n):
			j.fatalf("%s is %q; refused are %v", n, content, refused)
		}
	}
	if !j.sub.Settled() {
		j.fatalf("it is not settled")
	}
}

func rejectedNames(s *ads.Subscription) (names []string) {
	for _, r := range s.Rejected() {
		names = append(names, r.Name)
	}
	return names
}

// Whatever happens in whatever order, a client that judges each content once ends with every good
// secret, and those that it cannot use are known.
func TestSecretsModel(t *testing.T) {
	t.Parallel()
	for _, states := range []bool{false, true} {
		for _, names := range []int{6, 50} {
			t.Run(fmt.Sprintf("states=%v names=%d", states, names), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(100) {
					j := newJudge(t, states, seed, names)
					for range 5 {
						for range names / 4 {
							j.publish(names)
						}
						for range 60 {
							switch k := j.rng.IntN(19); {
							case !j.asked:
								j.ask()
							case k < 2:
								j.publish(names)
							case k < 12:
								j.pull()
							case k < 16:
								j.take()
							case !states || j.nonce != "":
								j.resubscribe(names)
							}
						}
						j.settle()
					}
				}
			})
		}
	}
}

// Of a thousand secrets, each costs about as much as one.
func BenchmarkSecrets(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var items, names []string
			for i := range n {
				names = append(names, fmt.Sprintf("file-cert:/etc/certificates/%05d.pem~/etc/certificates/%05d.key", i,
					i))
				items = append(items, names[i]+"=v")
			}
			to := set(secretType, items...)
			for b.Loop() {
				p := newPeer(&testing.T{}, secrets(), false)
				p.delta(to, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: names})
				var nonces []string
				for {
					for r, _ := p.sub.Next(p.now); r != nil; r, _ = p.sub.Next(p.now) {
						nonces = append(nonces, r.Nonce)
					}
					if len(nonces) == 0 {
						break
					}
					p.delta(to, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: nonces[0]})
					nonces = nonces[1:]
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/secret")
		})
	}
}
