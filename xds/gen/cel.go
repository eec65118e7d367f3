package gen

import (
	"strconv"
	"strings"
)

// Attributes of a connection in CEL. Source: Envoy, "Attributes".
const (
	callerIdentity    = "connection.uri_san_peer_certificate"
	callerCertificate = "connection.sha256_peer_certificate_digest"
	callerAddress     = "source.address" // with its port
	calledAddress     = "destination.address"
	calledPort        = "destination.port"
	calledName        = "connection.requested_server_name"
)

// celExpr is a condition on a connection in CEL.
type celExpr struct {
	op celOp
	// operands are those of celNot, celAnd and celOr.
	operands []celExpr
	// attribute is what the others are about, and values what they compare it with.
	attribute string
	values    []string
	// number is that of celLonger and celPort.
	number int
}

// celOp is what a condition does.
type celOp uint8

const (
	celFalse celOp = iota
	celTrue
	celNot
	celAnd
	celOr
	celMutual // the caller showed a certificate
	celIn     // the attribute is one of the values
	celStarts
	celEnds
	celHas
	celLonger // the attribute has more characters
	celPort   // the attribute is a number
)

// celLimit bounds the length of a condition, in bytes: Envoy reads at most 100,000 characters.
const celLimit = 90_000

// render is the condition as text; false when it never holds, or cannot be written so that Envoy
// reads it.
func (e celExpr) render() (string, bool) {
	var b strings.Builder
	if e.op == celFalse || !e.write(&b) || b.Len() > celLimit {
		return "", false
	}
	return b.String(), true
}

// write appends the condition, and says whether all of it can be written.
func (e celExpr) write(b *strings.Builder) bool {
	switch e.op {
	case celFalse, celTrue:
		b.WriteString(strconv.FormatBool(e.op == celTrue))
	case celNot:
		b.WriteByte('!')
		return e.operands[0].write(b)
	case celAnd, celOr:
		return e.writeOperands(b)
	case celMutual:
		b.WriteString("connection.mtls")
	case celIn:
		b.WriteString("(" + e.attribute + " in ")
		defer b.WriteByte(')')
		return writeTexts(b, "[", "]", e.values)
	case celStarts, celEnds, celHas:
		b.WriteString(e.attribute + map[celOp]string{celStarts: ".startsWith", celEnds: ".endsWith",
			celHas: ".contains"}[e.op])
		return writeTexts(b, "(", ")", e.values)
	case celLonger:
		b.WriteString("(" + e.attribute + ".size() > " + strconv.Itoa(e.number) + ")")
	case celPort:
		b.WriteString("(" + e.attribute + " == " + strconv.Itoa(e.number) + ")")
	}
	return true
}

func (e celExpr) writeOperands(b *strings.Builder) bool {
	between := " && "
	if e.op == celOr {
		between = " || "
	}
	b.WriteByte('(')
	for i, o := range e.operands {
		if i > 0 {
			b.WriteString(between)
		}
		if !o.write(b) {
			return false
		}
	}
	b.WriteByte(')')
	return true
}

// writeTexts appends texts in quotes, and says whether all of them are plain.
func writeTexts(b *strings.Builder, before, after string, values []string) bool {
	b.WriteString(before)
	for i, v := range values {
		if !isPlain(v) {
			return false
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("'" + v + "'")
	}
	b.WriteString(after)
	return true
}

// isPlain says that a text needs no escapes, neither in CEL nor in the format strings of Envoy that
// have it.
func isPlain(v string) bool {
	for i := range len(v) {
		c := v[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("-._~:/@[]", c) >= 0) {
			return false
		}
	}
	return true
}

// not is the opposite.
func (e celExpr) not() celExpr {
	switch e.op {
	case celFalse:
		return celExpr{op: celTrue}
	case celTrue:
		return celExpr{op: celFalse}
	case celNot:
		return e.operands[0]
	}
	return celExpr{op: celNot, operands: []celExpr{e}}
}

// all holds when each of them does, one when one of them does.
func all(list []celExpr) celExpr { return joined(celAnd, celFalse, celTrue, list) }
func one(list []celExpr) celExpr { return joined(celOr, celTrue, celFalse, list) }

// joined joins conditions: strong decides alone, neutral says nothing.
func joined(op, strong, neutral celOp, list []celExpr) celExpr {
	var operands []celExpr
	for _, e := range list {
		switch e.op {
		case strong:
			return e
		case neutral:
		default:
			operands = append(operands, e)
		}
	}
	switch len(operands) {
	case 0:
		return celExpr{op: neutral}
	case 1:
		return operands[0]
	}
	return celExpr{op: op, operands: operands}
}

// callerWith is a condition on what a certificate says, which callers without one do not meet.
func callerWith(e celExpr) celExpr { return all([]celExpr{{op: celMutual}, e}) }
