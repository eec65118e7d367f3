package xds

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/registry"
)

// value is one value of a node's metadata, reduced to what Istio's metadata holds: texts and maps.
// Numbers and booleans are texts too.
type value struct {
	text   string
	fields map[string]value
}

// maxMetadata bounds the depth of a node's metadata that is read.
const maxMetadata = 4

// scanNode reads the parts of an encoded envoy.config.core.v3.Node that matter.
func scanNode(raw []byte) (rawNode, error) {
	var n rawNode
	var version string
	built := false // it names extensions
	err := eachField(raw, func(num protowire.Number, b []byte, _ uint64) {
		switch num {
		case 1:
			n.id = valid(b)
		case 3:
			n.metadata = scanStruct(b, maxMetadata)
		case 4:
			n.locality = scanLocality(b)
		case 6:
			n.agent = valid(b)
		case 7:
			version = valid(b)
		case 8:
			if version == "" {
				version = scanBuild(b)
			}
		case fieldExtensions:
			built = true
		}
	})
	n.build = version
	if built {
		n.extensions = extensionsOf(raw)
	}
	return n, err
}

// fieldExtensions is Node.extensions.
const fieldExtensions = 9

// extensionsOf returns the part of an encoded node, which can be read, from its first extension to
// its last.
func extensionsOf(raw []byte) []byte {
	first, end := -1, 0
	for at := 0; at < len(raw); {
		num, _, n := protowire.ConsumeField(raw[at:])
		if n <= 0 {
			break
		}
		if num == fieldExtensions {
			if end = at + n; first < 0 {
				first = at
			}
		}
		at += n
	}
	return raw[first:end]
}

func scanLocality(raw []byte) (l registry.Locality) {
	_ = eachField(raw, func(num protowire.Number, b []byte, _ uint64) {
		switch num {
		case 1:
			l.Region = shared(valid(b))
		case 2:
			l.Zone = shared(valid(b))
		case 3:
			l.SubZone = shared(valid(b))
		}
	})
	return l
}

// scanBuild reads an envoy.config.core.v3.BuildVersion, "1.40.0".
func scanBuild(raw []byte) string {
	var parts [3]string
	_ = eachField(raw, func(num protowire.Number, b []byte, _ uint64) {
		if num != 1 {
			return
		}
		parts = [3]string{"0", "0", "0"}
		_ = eachField(b, func(num protowire.Number, _ []byte, n uint64) {
			if num >= 1 && num <= 3 {
				parts[num-1] = strconv.FormatUint(n, 10)
			}
		})
	})
	return strings.Trim(strings.Join(parts[:], "."), ".")
}

// scanStruct reads a google.protobuf.Struct.
func scanStruct(raw []byte, depth int) map[string]value {
	out := map[string]value{}
	_ = eachField(raw, func(num protowire.Number, entry []byte, _ uint64) {
		if num != 1 {
			return
		}
		var key string
		var v value
		_ = eachField(entry, func(num protowire.Number, b []byte, _ uint64) {
			switch num {
			case 1:
				key = valid(b)
			case 2:
				v = scanValue(b, depth)
			}
		})
		out[key] = v
	})
	return out
}

// scanValue reads a google.protobuf.Value.
func scanValue(raw []byte, depth int) (v value) {
	_ = eachField(raw, func(num protowire.Number, b []byte, n uint64) {
		switch num {
		case 2:
			v.text = strconv.FormatFloat(math.Float64frombits(n), 'f', -1, 64)
		case 3:
			v.text = valid(b)
		case 4:
			v.text = strconv.FormatBool(n != 0)
		case 5:
			if depth > 1 {
				v.fields = scanStruct(b, depth-1)
			}
		}
	})
	return v
}

// valid is b as text; what is not text is replaced.
func valid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// eachField yields the fields of an encoded message: bytes, or a number.
func eachField(raw []byte, yield func(num protowire.Number, b []byte, n uint64)) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return fmt.Errorf("malformed: %w", protowire.ParseError(n))
		}
		raw = raw[n:]
		var b []byte
		var number uint64
		switch typ {
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(raw)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(raw)
		case protowire.Fixed64Type:
			number, n = protowire.ConsumeFixed64(raw)
		default:
			n = protowire.ConsumeFieldValue(num, typ, raw)
			num = 0
		}
		if n < 0 {
			return fmt.Errorf("malformed: field %d: %w", num, protowire.ParseError(n))
		}
		raw = raw[n:]
		if num != 0 {
			yield(num, b, number)
		}
	}
	return nil
}
