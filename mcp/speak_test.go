package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// pipe is a stream whose other end is the test.
type pipe struct {
	ctx     context.Context
	said    chan any
	answers chan *frame
}

func (p *pipe) SendMsg(m any) error {
	select {
	case p.said <- m:
		return nil
	case <-p.ctx.Done():
		return io.EOF
	}
}

func (p *pipe) RecvMsg(m any) error {
	select {
	case f := <-p.answers:
		m.(*frame).raw = f.raw
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// conversation is a source that asks for Gateways in state of the world, and what it says.
type conversation struct {
	t       *testing.T
	source  *Source
	pipe    *pipe
	batches chan feed.Batch[*config.Object]
	ended   chan error
	cancel  context.CancelFunc
}

func converse(t *testing.T, change func(*Config), kept ...feed.Update[*config.Object]) *conversation {
	t.Helper()
	cfg := Config{Name: "test", Address: "server.test:1", NodeID: "a", Protocol: XDSState, Kinds: []string{"EnvoyFilter", "Gateway"}}
	change(&cfg)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Remember(kept)
	c := &conversation{t: t, source: s, batches: make(chan feed.Batch[*config.Object], 100)}
	c.begin()
	return c
}

// begin opens a stream.
func (c *conversation) begin() {
	ctx, cancel := context.WithCancel(c.t.Context())
	c.ended, c.cancel, c.pipe = make(chan error, 1), cancel, &pipe{ctx: ctx, said: make(chan any, 10_000), answers: make(chan *frame)}
	go func(p *pipe, ended chan<- error) {
		err := c.source.speak(ctx, cancel, p, c.batches)
		c.source.parts.Wait()
		ended <- err
	}(c.pipe, c.ended)
}

// again ends the stream and opens another one after a while.
func (c *conversation) again(after time.Duration) {
	c.t.Helper()
	c.cancel()
	c.source.lost(c.t.Context(), c.batches, <-c.ended)
	time.Sleep(after)
	c.begin()
}

// answer answers about a type and waits until all is quiet.
func (c *conversation) answer(typeURL, nonce string, items ...item) {
	c.t.Helper()
	r := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: nonce, VersionInfo: nonce}
	for _, it := range items {
		r.Resources = append(r.Resources, &anypb.Any{TypeUrl: it.typeURL, Value: it.raw})
	}
	c.pipe.answers <- encode(c.t, r)
	synctest.Wait()
}

// says is all that was said since the last call.
func (c *conversation) says() string {
	c.t.Helper()
	synctest.Wait()
	var all []any
	for {
		select {
		case m := <-c.pipe.said:
			all = append(all, m)
			continue
		default:
		}
		return said(c.t, all, true)
	}
}

// tells is what was told since the last call: "full 1", "1", "standing …".
func (c *conversation) tells() string {
	var out []string
	synctest.Wait()
	for {
		select {
		case b := <-c.batches:
			text := ""
			if b.Full {
				text = "full "
			}
			for _, u := range b.Updates {
				text += u.Group + " "
			}
			if b.Standing != nil {
				text += "standing " + b.Standing.Error
			}
			out = append(out, strings.TrimSpace(text))
			continue
		default:
		}
		return strings.Join(out, "; ")
	}
}

// The first complete state is told when every kind was answered under every name that it may have.
func TestSpeakComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(*Config) {})
		c.answer(gatewayV1, "1", gateway("s/a", "1", "a.test"))
		if got := c.tells(); got != "" {
			t.Errorf("told %q before everything was answered", got)
		}
		c.answer(filterOld, "2")
		if got := c.tells(); got != "full Gateway s/a; standing" {
			t.Errorf("told %q", got)
		}
		c.answer(gatewayV1, "3", gateway("s/a", "1", "a.test"), gateway("s/b", "1", "b.test"))
		if got := c.tells(); got != "Gateway s/b" {
			t.Errorf("told %q", got)
		}
		c.cancel()
		if err := <-c.ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// The same refusal waits longer each time, and another one does not wait.
func TestSpeakRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(*Config) {})
		defer c.cancel()
		c.says()
		c.answer(gatewayV1, "1", gateway("s/a", "1", ""))
		if got := c.says(); !strings.HasPrefix(got, "v1/Gateway nack 1 refused 1: Gateway s/a") {
			t.Fatalf("says %q", got)
		}
		for i, wait := range []time.Duration{1, 2, 4, 8, 10, 10} {
			c.answer(gatewayV1, "again", gateway("s/a", "1", ""))
			time.Sleep(wait*time.Second - time.Millisecond)
			if got := c.says(); got != "" {
				t.Errorf("%d: says %q too early", i, got)
			}
			time.Sleep(2 * time.Millisecond)
			if got := c.says(); !strings.HasPrefix(got, "v1/Gateway nack again") {
				t.Errorf("%d: says %q after %ds", i, got, wait)
			}
			c.answer(filterOld, "keep")
			c.says()
		}
		c.answer(gatewayV1, "other", gateway("s/a", "2", ""), gateway("s/b", "1", ""))
		if got := c.says(); !strings.HasPrefix(got, "v1/Gateway nack other refused 2") {
			t.Errorf("says %q", got)
		}
		c.answer(gatewayV1, "good", gateway("s/a", "3", "a.test"))
		if got := c.says(); got != "v1/Gateway ack good good" {
			t.Errorf("says %q", got)
		}
	})
}

// What a server does again and again does not fill the log.
func TestSpeakLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		c := converse(t, func(cfg *Config) { cfg.Log = hclog.New(&hclog.LoggerOptions{Output: &lines, Level: hclog.Warn}) })
		for i := range 300 {
			c.answer("networking.istio.io/v9/Gateway", "n")
			c.answer(gatewayV1, "n", gateway("s/a", fmt.Sprint(i), ""), gateway(fmt.Sprintf("s/b%d", i), "1", ""))
		}
		c.cancel()
		<-c.ended
		for what, most := range map[string]int{"what was not asked": 51, "objects were refused": 51} {
			if n := strings.Count(lines.String(), what); n == 0 || n > most {
				t.Errorf("%q stands in %d lines, want 1 to %d", what, n, most)
			}
		}
	})
}

// A server that holds nothing is believed when it has stood by that.
func TestSpeakBare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(c *Config) { c.EmptyAfter = time.Minute })
		defer c.cancel()
		for _, typ := range []string{gatewayV1, filterOld, gatewayBeta, gatewayOld} {
			c.answer(typ, typ)
		}
		if got := c.tells(); !strings.HasPrefix(got, "standing the server server.test:1 holds no object of any kind") {
			t.Errorf("told %q", got)
		}
		time.Sleep(59 * time.Second)
		if got := c.tells(); got != "" {
			t.Errorf("told %q too early", got)
		}
		time.Sleep(2 * time.Second)
		if got := c.tells(); got != "full; standing" {
			t.Errorf("told %q", got)
		}
	})
}

// And so is one whose connections end before that: what it stood by on each counts, less the time between them.
func TestSpeakBareAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(c *Config) { c.EmptyAfter = time.Minute })
		for i := range 3 {
			for _, typ := range []string{gatewayV1, filterOld, gatewayBeta, gatewayOld} {
				c.answer(typ, typ)
			}
			time.Sleep(24 * time.Second)
			if got := c.tells(); strings.Contains(got, "full") != (i == 2) {
				t.Errorf("connection %d: told %q", i, got)
			}
			if i < 2 {
				c.again(5 * time.Second)
			}
		}
		c.cancel()
	})
}

// keptGateway is a Gateway as it was kept over a restart.
func keptGateway(t *testing.T, name string) feed.Update[*config.Object] {
	t.Helper()
	c := testContent()
	c.take(gateways(t)[0], &word{whole: true, items: []item{gateway(name, "1", "a.test")}}, 1, start)
	return c.update(c.groups()[0])
}

// A server that has lost a kind while we did not run is doubted as one is that comes back without it; what it lists of others
// counts at once, and what it dropped of those is gone.
func TestSpeakRemembers(t *testing.T) {
	t.Parallel()
	entry := func(name string) item {
		body, err := anypb.New(&networking.ServiceEntry{Hosts: []string{"web.test"}, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}}})
		if err != nil {
			t.Fatal(err)
		}
		return resourceItem(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: name}, Body: body})
	}
	for name, c := range map[string]struct {
		entries, gateways []item
		want, afterwards  string
		emptied           string
	}{
		"lost":       {[]item{entry("s/web")}, nil, "full Gateway s/a Gateway s/b ServiceEntry s/web; standing the server server.test:1: it came back without any Gateway", "Gateway s/a Gateway s/b; standing", ""},
		"fewer":      {[]item{entry("s/web")}, []item{gateway("s/b", "2", "a.test")}, "full Gateway s/b ServiceEntry s/web; standing", "", ""},
		"bare":       {nil, nil, "standing the server server.test:1: it came back without any object: the 2 that it listed before stay", "", ""},
		"gone":       {nil, nil, "standing the server server.test:1: it came back without any Gateway: 2 objects", "full; standing", Believe},
		"unreadable": {nil, []item{gateway("no-slash", "1", "a.test")}, "full list networking.istio.io/v1/Gateway Gateway s/a Gateway s/b; standing", "", ""},
		"intact":     {nil, []item{gateway("s/a", "1", "a.test"), gateway("s/b", "1", "a.test")}, "full Gateway s/a Gateway s/b; standing", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				talk := converse(t, func(cfg *Config) {
					cfg.Kinds, cfg.EmptyAfter, cfg.Emptied = []string{"Gateway", "ServiceEntry"}, time.Minute, c.emptied
				}, keptGateway(t, "s/a"), keptGateway(t, "s/b"))
				defer talk.cancel()
				for _, version := range []string{"v1", "v1beta1", "v1alpha3"} {
					if version == "v1" || len(c.gateways) == 0 {
						talk.answer("networking.istio.io/"+version+"/Gateway", "g", c.gateways...)
					}
					if version == "v1" || len(c.entries) == 0 {
						talk.answer("networking.istio.io/"+version+"/ServiceEntry", "s", c.entries...)
					}
				}
				if got := talk.tells(); !strings.HasPrefix(got, c.want) {
					t.Errorf("told %q, want %q", got, c.want)
				}
				time.Sleep(59 * time.Second)
				if got := talk.tells(); got != "" {
					t.Errorf("told %q too early", got)
				}
				time.Sleep(2 * time.Second)
				if got := talk.tells(); got != c.afterwards {
					t.Errorf("told %q in the end, want %q", got, c.afterwards)
				}
			})
		})
	}
}

// A server that says nothing, or not about everything, is named with what it owes.
func TestSpeakImpatient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer bool
		want   string
	}{
		"nothing": {false, "it answers nothing within 30s (answerWait)"},
		"half":    {true, "it said nothing about 1 kinds within 30s (answerWait), the first is EnvoyFilter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				talk := converse(t, func(*Config) {})
				if c.answer {
					talk.answer(gatewayV1, "1", gateway("s/a", "1", "a.test"))
				}
				if err := <-talk.ended; err == nil || err.Error() != c.want {
					t.Errorf("ended with %v, want %s", err, c.want)
				}
				if got := talk.tells(); got != "" {
					t.Errorf("told %q", got)
				}
			})
		})
	}
}

// Bytes that are no answer end the stream.
func TestSpeakNonsense(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(*Config) {})
		c.pipe.answers <- &frame{[]byte{0xff, 0xff}}
		if err := <-c.ended; err == nil || !strings.Contains(err.Error(), "it answers nonsense") {
			t.Errorf("ended with %v", err)
		}
	})
}

// A server that sends and does not read what is said about it does not fill the memory.
func TestSpeakDeaf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(*Config) {})
		c.says()
		for range cap(c.pipe.said) {
			c.pipe.said <- nil
		}
		for range 2 * maxSay {
			select {
			case c.pipe.answers <- encode(t, &discoveryv3.DiscoveryResponse{TypeUrl: gatewayV1, Nonce: "n"}):
				continue
			case err := <-c.ended:
				if !strings.Contains(err.Error(), "it does not read") {
					t.Errorf("ended with %v", err)
				}
			}
			return
		}
		t.Error("it goes on for ever")
		c.cancel()
	})
}

// Differences are tried first, state of the world at once after them, and then in turn.
func TestTurned(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Name: "a", Address: "a:1", NodeID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		why    error
		now    bool
		states bool
	}{
		{errors.New("connection refused"), false, false},
		{errMute, true, true},
		{errors.New("killed"), false, true},
		{errMute, false, false},
	} {
		if got := s.turned(c.why); got != c.now || s.states != c.states {
			t.Errorf("%d: at once %v, state of the world %v", i, got, s.states)
		}
	}
}

// What gRPC puts around an error is left out, and what to do is said.
func TestOutage(t *testing.T) {
	t.Parallel()
	const refused = "it refused the connection while that began: see certFile and keyFile, which it may not take or miss, and serverName"
	const ended = "it ended the connection before it said anything, as one does that does not take the certificate which is shown, or misses one: see certFile and keyFile, that it runs, and its log"
	for name, c := range map[string]struct {
		why       string
		plaintext bool
		heard     bool
		want      string
	}{
		"dial":            {`connection error: desc = "transport: Error while dialing: dial tcp a:1: connect: connection refused"`, false, false, "(dial tcp a:1: connect: connection refused): see that it runs, and its log"},
		"our certificate": {`connection error: desc = "error reading server preface: remote error: tls: bad certificate"`, false, false, refused},
		"lost words":      {"write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe", false, false, ended},
		"without TLS":     {"write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe", true, false, "see that it runs, and its log"},
		"later":           {"write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe", false, true, "write: broken pipe): see that it runs, and its log"},
		"its certificate": {"tls: failed to verify certificate: x509: certificate signed by unknown authority", false, false, "see caFile, serverName and certFile"},
	} {
		s, err := New(Config{Name: "a", Address: "a:1", NodeID: "a", Plaintext: c.plaintext})
		if err != nil {
			t.Fatal(err)
		}
		s.touch.stream = c.heard
		if got := s.outage(errors.New(c.why)); !strings.HasPrefix(got, "the server a:1 cannot be asked (") || !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A server that answers and does not believe us speaks of our certificate, not of its own.
func TestOutageNotBelieved(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Name: "a", Address: "a:1", NodeID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.outage(errNotBelieved); !strings.HasSuffix(got, "): see certFile, keyFile and namespace: the server must know who asks, and let them") {
		t.Errorf("got %q", got)
	}
}

// Where one of our own files cannot be used nobody is sent to the server.
func TestOutageOfOwnFiles(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	const begin, end = "the server a:1 is not asked, for our own files of TLS cannot be used (", "): mend the file, or the setting that names it"
	for name, c := range map[string]struct {
		settings Config
		want     string
	}{
		"certFile is not there": {Config{CertFile: "/there/is/none.pem", KeyFile: bad}, "certFile: open /there/is/none.pem: no such file or directory"},
		"keyFile is not there":  {Config{CertFile: bad, KeyFile: "/there/is/none.pem"}, "keyFile: open /there/is/none.pem: no such file or directory"},
		"caFile holds nothing":  {Config{CAFile: bad}, "caFile: " + bad + " holds no certificate in PEM"},
		"certFile is no pair":   {Config{CertFile: bad, KeyFile: bad}, "certFile: " + bad + " and " + bad + ": tls: failed to find any PEM data in certificate input"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.settings.Name, c.settings.Address, c.settings.NodeID = "a", "a:1", "a"
			s, err := New(c.settings)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.outage(s.call(t.Context(), nil)); got != begin+c.want+end {
				t.Errorf("got %q, want %q", got, begin+c.want+end)
			}
		})
	}
}

// Of resource-sink the address is our own: nobody is called a server who is none.
func TestSinkDoubts(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Name: "a", Address: "10.0.0.1:9901", NodeID: "a", Plaintext: true, Protocol: ResourceSink})
	if err != nil {
		t.Fatal(err)
	}
	bare := talk{Source: s, believe: start}
	if got := bare.doubts(start); !strings.HasPrefix(got, "the source that calls 10.0.0.1:9901 holds no object of any kind") {
		t.Errorf("got %q", got)
	}
}
