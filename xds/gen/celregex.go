package gen

import "regexp/syntax"

// textShape is what texts look like that a regular expression matches: pieces that are plain text,
// and between them, where anything may stand, gaps. Envoy bounds the expressions of CEL to some 100
// instructions, which the namespace of a policy exceeds, so that they are written in another way.
type textShape []shapePiece

// shapePiece is a text, or a gap of at least gap-1 characters when gap is not zero.
type shapePiece struct {
	text string
	gap  int
}

// unknownShape stands for texts that have no shape.
func unknownShape() textShape { return nil }

// mostShapes bounds how many shapes one expression becomes.
const mostShapes = 32

// shapesOf are the shapes of all texts that a regular expression matches as a whole.
func shapesOf(regex string) []textShape {
	unknown := []textShape{unknownShape()}
	re, err := syntax.Parse(regex, syntax.Perl)
	if err != nil {
		return unknown
	}
	shapes, ok := expand(re)
	if !ok {
		return unknown
	}
	out := make([]textShape, len(shapes))
	for i, s := range shapes {
		out[i] = s.merged()
	}
	return out
}

// expand is shapesOf without merging; false when there are too many, or one cannot be told.
func expand(re *syntax.Regexp) ([]textShape, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []textShape{{{}}}, true
	case syntax.OpLiteral:
		return []textShape{{{text: string(re.Rune)}}}, re.Flags&syntax.FoldCase == 0
	case syntax.OpCapture:
		return expand(re.Sub[0])
	case syntax.OpCharClass:
		return expandClass(re.Rune)
	case syntax.OpQuest:
		out, ok := expand(re.Sub[0])
		return append(out, textShape{{}}), ok
	case syntax.OpStar, syntax.OpPlus:
		gap := 1
		if re.Op == syntax.OpPlus {
			gap = 2
		}
		op := re.Sub[0].Op
		return []textShape{{{gap: gap}}}, op == syntax.OpAnyChar || op == syntax.OpAnyCharNotNL
	case syntax.OpAlternate:
		var out []textShape
		for _, sub := range re.Sub {
			shapes, ok := expand(sub)
			if out = append(out, shapes...); !ok || len(out) > mostShapes {
				return nil, false
			}
		}
		return out, true
	case syntax.OpConcat:
		return expandInTurn(re.Sub)
	}
	return nil, false
}

// expandClass are the characters of a class, given by its ranges; false when there are many.
func expandClass(ranges []rune) (out []textShape, few bool) {
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if len(out) == mostShapes {
				return nil, false
			}
			out = append(out, textShape{{text: string(r)}})
		}
	}
	return out, true
}

// expandInTurn are the shapes of expressions that follow one another.
func expandInTurn(list []*syntax.Regexp) ([]textShape, bool) {
	out := []textShape{{}}
	for _, sub := range list {
		shapes, ok := expand(sub)
		if !ok || len(out)*len(shapes) > mostShapes {
			return nil, false
		}
		var next []textShape
		for _, before := range out {
			for _, after := range shapes {
				next = append(next, append(append(textShape{}, before...), after...))
			}
		}
		out = next
	}
	return out, true
}

// merged joins what stands side by side.
func (s textShape) merged() textShape {
	out := textShape{}
	for _, p := range s {
		last := len(out) - 1
		switch {
		case p == shapePiece{}:
		case last >= 0 && p.gap == 0 && out[last].gap == 0:
			out[last].text += p.text
		case last >= 0 && p.gap > 0 && out[last].gap > 0:
			out[last].gap += p.gap - 1
		default:
			out = append(out, p)
		}
	}
	return out
}

// bounds bounds that an attribute has the shape. At most one gap inside can be told, or one on
// either side of a text.
func (s textShape) bounds(attribute string) celBounds {
	least, before, after, gaps := 0, "", "", 0
	for i, p := range s {
		if p.gap > 0 {
			gaps, least = gaps+1, least+p.gap-1
			continue
		}
		if !isPlain(p.text) {
			return untold()
		}
		least += len(p.text)
		switch i {
		case 0:
			before = p.text
		case len(s) - 1:
			after = p.text
		}
	}
	is := func(op celOp, v string) celExpr { return celExpr{op: op, attribute: attribute, values: []string{v}} }
	switch {
	case len(s) == 1 && gaps == 0:
		return told(is(celIn, before))
	case gaps == 1 && len(s) <= 3:
		var parts []celExpr
		if before == "" && after == "" || before != "" && after != "" || least > len(before)+len(after) {
			parts = append(parts, celExpr{op: celLonger, attribute: attribute, number: least - 1})
		}
		if before != "" {
			parts = append(parts, is(celStarts, before))
		}
		if after != "" {
			parts = append(parts, is(celEnds, after))
		}
		return told(all(parts))
	case len(s) == 3 && s[0].gap == 1 && s[2].gap == 1:
		return told(is(celHas, s[1].text))
	}
	return untold()
}
