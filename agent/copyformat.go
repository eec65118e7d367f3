package agent

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A copy on disk is, in this order: copyMagic; the format and the length of the header, both 4 bytes, big endian; the
// header; the records, each after its length as a varint; and an HMAC-SHA256 of all that. Header and records are
// protobuf messages without a schema file: a field that is not known is left out by who reads.
const (
	copyMagic  = "ASHORECP"
	copyFormat = 1
	copyTag    = sha256.Size
	// maxCopyHeader and maxCopyRecord bound what is read at once.
	maxCopyHeader, maxCopyRecord = 64 << 10, 256 << 20
	// copyClock is how far ahead of this machine's clock a copy may have been made.
	copyClock = 5 * time.Minute
)

// copyHeader says what a copy is.
type copyHeader struct {
	saved, confirmed time.Time // when it was written, and when a control plane last confirmed it
	owner            copyOwner
	records          uint64 // bytes of them
	clean            bool   // the agent ended in order: nothing was under way
}

// copyOwner is whose a copy is.
type copyOwner struct{ node, identity, machine string }

// copyRecord is one thing of a copy. Which fields count depends on kind.
type copyRecord struct {
	kind                          copyKind
	name, version, typeURL, words string
	body                          []byte
	at                            time.Time
	flags                         uint64
}

// copyKind is what a record is about.
type copyKind uint64

const (
	copyBuild    copyKind = iota + 1 // body: what Envoy adds to the node
	copyType                         // name: the type of what follows
	copyWanted                       // name: wanted by name
	copyGone                         // name: does not exist
	copyOffered                      // a resource as the control plane offered it
	copyAccepted                     // the same name as Envoy took it, when that differs; follows copyOffered
	copyProbe                        // name: a group; body: its probe. The last one, for agents that do not know it
)

// Flags of copyType and copyOffered.
const (
	copyFlagAll      = 1 << iota // everything is wanted
	copyFlagComplete             // everything is held
	copyFlagAccepted             // Envoy took what is offered
)

func (h *copyHeader) encode() []byte {
	var b []byte
	number := func(num protowire.Number, v uint64) {
		b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
	}
	word := func(num protowire.Number, s string) {
		b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	number(1, uint64(h.saved.UnixNano()))
	number(2, uint64(h.confirmed.UnixNano()))
	word(3, h.owner.node)
	word(4, h.owner.identity)
	word(5, h.owner.machine)
	number(6, h.records)
	number(7, protowire.EncodeBool(h.clean))
	return b
}

// errCopyDamaged is that a copy is not what was written.
var errCopyDamaged = errors.New("it is damaged, or was changed")

// fields calls number and word for each field of a message.
func fields(raw []byte, number func(protowire.Number, uint64), word func(protowire.Number, []byte)) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return errCopyDamaged
		}
		m := protowire.ConsumeFieldValue(num, typ, raw[n:])
		if m < 0 {
			return errCopyDamaged
		}
		switch typ {
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(raw[n:])
			number(num, v)
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(raw[n:])
			word(num, v)
		}
		raw = raw[n+m:]
	}
	return nil
}

func decodeCopyHeader(raw []byte) (h copyHeader, err error) {
	err = fields(raw, func(num protowire.Number, v uint64) {
		switch num {
		case 1:
			h.saved = time.Unix(0, int64(v))
		case 2:
			h.confirmed = time.Unix(0, int64(v))
		case 6:
			h.records = v
		case 7:
			h.clean = v != 0
		}
	}, func(num protowire.Number, v []byte) {
		switch num {
		case 3:
			h.owner.node = string(v)
		case 4:
			h.owner.identity = string(v)
		case 5:
			h.owner.machine = string(v)
		}
	})
	return h, err
}

// appendTo appends the record with its length.
func (r *copyRecord) encode(b []byte) []byte {
	number := func(num protowire.Number, v uint64) {
		if v != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
		}
	}
	word := func(num protowire.Number, s string) {
		if s != "" {
			b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
		}
	}
	number(1, uint64(r.kind))
	word(2, r.name)
	word(3, r.version)
	word(4, r.typeURL)
	word(5, r.words)
	if !r.at.IsZero() {
		number(7, uint64(r.at.UnixNano()))
	}
	number(8, r.flags)
	if r.body != nil {
		b = protowire.AppendBytes(protowire.AppendTag(b, 6, protowire.BytesType), r.body)
	}
	return b
}

func decodeCopyRecord(raw []byte) (r copyRecord, err error) {
	err = fields(raw, func(num protowire.Number, v uint64) {
		switch num {
		case 1:
			r.kind = copyKind(v)
		case 7:
			r.at = time.Unix(0, int64(v))
		case 8:
			r.flags = v
		}
	}, func(num protowire.Number, v []byte) {
		switch num {
		case 2:
			r.name = string(v)
		case 3:
			r.version = string(v)
		case 4:
			r.typeURL = string(v)
		case 5:
			r.words = string(v)
		case 6:
			r.body = v
		}
	})
	return r, err
}

// records are what a copy consists of; it is called more than once and yields the same each time.
type records func(yield func(*copyRecord) bool)

// writeCopy writes a whole copy.
func writeCopy(w io.Writer, h copyHeader, all records, key []byte) error {
	var buf []byte
	h.records = 0
	for r := range all {
		buf = r.encode(buf[:0])
		h.records += uint64(protowire.SizeVarint(uint64(len(buf))) + len(buf))
	}
	mac := hmac.New(sha256.New, key)
	out := bufio.NewWriter(w)
	both := io.MultiWriter(out, mac)
	head := h.encode()
	start := binary.BigEndian.AppendUint32([]byte(copyMagic), copyFormat)
	start = binary.BigEndian.AppendUint32(start, uint32(len(head)))
	if _, err := both.Write(append(start, head...)); err != nil {
		return err
	}
	var size []byte
	for r := range all {
		buf = r.encode(buf[:0])
		size = binary.AppendUvarint(size[:0], uint64(len(buf)))
		if _, err := both.Write(size); err != nil {
			return err
		}
		if _, err := both.Write(buf); err != nil {
			return err
		}
	}
	if _, err := out.Write(mac.Sum(nil)); err != nil {
		return err
	}
	return out.Flush()
}
