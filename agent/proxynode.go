package agent

import (
	"bytes"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Numbers of fields of envoy.config.core.v3.Node.
const (
	nodeID         = 1
	nodeFirstBuild = 5  // build_version, user_agent_name, its versions, extensions, client_features, …
	nodeLastBuild  = 11 // listening_addresses
	maxNodeBytes   = 1 << 20
)

// readNode returns the ID of an encoded node, and what Envoy adds to its bootstrap's: which program it is and what it
// was built with, encoded so that the same program gives the same bytes: Envoy lays maps out anew each time it starts.
func readNode(raw []byte) (id string, build []byte, err error) {
	if len(raw) > maxNodeBytes {
		return "", nil, fmt.Errorf("the node has %d bytes, at most %d are allowed", len(raw), maxNodeBytes)
	}
	for rest := raw; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return "", nil, fmt.Errorf("read node: %w", protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, rest[n:])
		if m < 0 {
			return "", nil, fmt.Errorf("read node: field %d: %w", num, protowire.ParseError(m))
		}
		switch {
		case num == nodeID && typ == protowire.BytesType:
			b, _ := protowire.ConsumeBytes(rest[n:])
			id = string(b)
		case num >= nodeFirstBuild && num <= nodeLastBuild:
			build = append(build, rest[:n+m]...)
		}
		rest = rest[n+m:]
	}
	var n corev3.Node
	if err := proto.Unmarshal(build, &n); err != nil {
		return "", nil, fmt.Errorf("read node: %w", err)
	}
	build, err = proto.MarshalOptions{Deterministic: true}.Marshal(&n)
	return id, build, err
}

// introduce takes in who Envoy says it is. Errors: it is not the one that this agent runs.
func (p *proxy) introduce(raw []byte) error {
	if raw == nil {
		return errors.New("the first request of a stream has to carry a node")
	}
	id, build, err := readNode(raw)
	if err != nil {
		return err
	}
	if id != p.cfg.Node.GetId() {
		return fmt.Errorf("this agent serves the node %s, not %q", p.cfg.Node.GetId(), id)
	}
	p.locked(func() {
		if bytes.Equal(build, p.build) {
			return
		}
		if p.build != nil {
			p.log.Info("another envoy was started: the control plane is told what it can do")
			for _, t := range p.relay.types {
				t.retry(everything)
			}
		}
		p.build = build
		p.relay.version++
		poke(p.again)
	})
	return nil
}

// poke makes a reader of c look, now or when it is ready.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
