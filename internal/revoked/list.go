package revoked

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// Type is the type of the resource.
	Type = "type.googleapis.com/ashore.v1.RevokedPeers"
	// Name is that of the one resource.
	Name = "revoked-peers"
	// Recent is for how long an address is told at least: it may be another's after a while.
	Recent = time.Hour
	// MaxPeers bounds a list, and MaxAddresses what one revocation adds to it.
	MaxPeers, MaxAddresses = 1024, 512
)

// Peer is an address from which a revoked workload spoke.
type Peer struct {
	Address netip.Addr
	// Epoch is that of its revocation: the same address revoked again is another Peer.
	Epoch uint64
}

// Sort makes a list of peers in any order: sorted, each once, the latest MaxPeers.
func Sort(peers []Peer) []Peer {
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), a.Address.Compare(b.Address)) })
	peers = slices.Compact(peers)
	return peers[max(0, len(peers)-MaxPeers):]
}

const (
	fieldPeers   = 1
	fieldAddress = 1
	fieldEpoch   = 2
)

// Encode is the list as bytes.
func Encode(peers []Peer) []byte {
	var out []byte
	for _, p := range peers {
		var b []byte
		b = protowire.AppendTag(b, fieldAddress, protowire.BytesType)
		b = protowire.AppendString(b, p.Address.String())
		b = protowire.AppendTag(b, fieldEpoch, protowire.VarintType)
		b = protowire.AppendVarint(b, p.Epoch)
		out = protowire.AppendTag(out, fieldPeers, protowire.BytesType)
		out = protowire.AppendBytes(out, b)
	}
	return out
}

var errLong = errors.New("more addresses of revoked workloads than there may be")

// Decode reads what Encode wrote. Fields that it does not know are left out. Errors: what is no such list.
func Decode(body []byte) ([]Peer, error) {
	var out []Peer
	err := fields(body, func(num protowire.Number, value []byte, _ uint64) error {
		if num != fieldPeers {
			return nil
		}
		if len(out) == MaxPeers {
			return errLong
		}
		p, err := decodePeer(value)
		out = append(out, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read addresses of revoked workloads: %w", err)
	}
	return out, nil
}

func decodePeer(body []byte) (p Peer, err error) {
	text := ""
	err = fields(body, func(num protowire.Number, value []byte, n uint64) error {
		switch num {
		case fieldAddress:
			text = string(value)
		case fieldEpoch:
			p.Epoch = n
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	p.Address, err = netip.ParseAddr(text)
	return p, err
}

// fields calls f for each field of an encoded message: value of one that is bytes, n of one that is a number.
func fields(body []byte, f func(num protowire.Number, value []byte, n uint64) error) error {
	for len(body) > 0 {
		num, typ, tag := protowire.ConsumeTag(body)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(num, typ, body[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		var n uint64
		switch typ {
		case protowire.BytesType:
			value, _ = protowire.ConsumeBytes(body[tag:])
		case protowire.VarintType:
			n, _ = protowire.ConsumeVarint(body[tag:])
		}
		if err := f(num, value, n); err != nil {
			return err
		}
		body = body[tag+size:]
	}
	return nil
}
