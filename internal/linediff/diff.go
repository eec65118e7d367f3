package linediff

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// context is how many equal lines are shown around a difference.
	context = 3
	// maxEdits bounds the search for the fewest edits: its cost is that number's square.
	maxEdits = 1000
)

// edit is one line of a comparison: ' ' in both, '-' in the first alone, '+' in the second alone.
type edit struct {
	op   byte
	line string
}

// Unified is the difference between two texts, which are called by their names; empty when they are
// equal. A text without an end of its last line counts as one that has it.
func Unified(fromName, toName, from, to string) string {
	edits := compare(lines(from), lines(to))
	if !slices.ContainsFunc(edits, func(e edit) bool { return e.op != ' ' }) {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", fromName, toName)
	a, b := 1, 1 // the numbers of the next lines
	for i := 0; i < len(edits); {
		begin, end := hunk(edits, i)
		if begin == len(edits) {
			break
		}
		a, b = a+begin-i, b+begin-i
		inA, inB := count(edits[begin:end])
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", span(a, inA), span(b, inB))
		for _, e := range edits[begin:end] {
			out.WriteByte(e.op)
			out.WriteString(e.line)
			out.WriteByte('\n')
		}
		a, b, i = a+inA, b+inB, end
	}
	return out.String()
}

// span is a stretch of lines as the head of a hunk says it; an empty one is named by the line
// before it.
func span(from, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", from-1)
	case 1:
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d,%d", from, n)
}

// hunk is the next stretch of edits from i on that is shown: differences that are close together,
// with what is equal around them. Both are len(edits) when there is none.
func hunk(edits []edit, i int) (begin, end int) {
	first := i
	for first < len(edits) && edits[first].op == ' ' {
		first++
	}
	if first == len(edits) {
		return first, first
	}
	last := first
	for j := first; j < len(edits) && j-last <= 2*context+1; j++ {
		if edits[j].op != ' ' {
			last = j
		}
	}
	return max(i, first-context), min(len(edits), last+1+context)
}

// count is how many lines of both sides some edits stand for.
func count(edits []edit) (a, b int) {
	for _, e := range edits {
		if e.op != '+' {
			a++
		}
		if e.op != '-' {
			b++
		}
	}
	return a, b
}

// lines are those of a text, without their ends.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compare is what makes b of a.
func compare(a, b []string) []edit {
	var head, tail []edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, edit{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(tail)
	return slices.Concat(head, shortest(a, b), tail)
}

// shortest is the least that makes b of a, by E. Myers, "An O(ND) Difference Algorithm and Its
// Variations" (1986).
func shortest(a, b []string) []edit {
	most := min(len(a)+len(b), maxEdits)
	at := make([]int, 2*most+3) // at[k+most+1]: how far in a the best path on the diagonal k has come
	var trace [][]int
	for d := 0; d <= most; d++ {
		trace = append(trace, slices.Clone(at))
		for k := -d; k <= d; k += 2 {
			x := step(at, k, d, most)
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			at[k+most+1] = x
			if x >= len(a) && x-k >= len(b) {
				return walk(a, b, trace, most)
			}
		}
	}
	return replaced(a, b)
}

// step is where a path on the diagonal k begins after d edits: after an insertion or a deletion,
// whichever came farther.
func step(at []int, k, d, most int) int {
	if down(at, k, d, most) {
		return at[k+most+2]
	}
	return at[k+most] + 1
}

func down(at []int, k, d, most int) bool { return k == -d || k != d && at[k+most] < at[k+most+2] }

// walk goes the path back from its end.
func walk(a, b []string, trace [][]int, most int) []edit {
	var out []edit
	x, y := len(a), len(b)
	equal := func(toX int) {
		for ; x > toX; x, y = x-1, y-1 {
			out = append(out, edit{' ', a[x-1]})
		}
	}
	for d := len(trace) - 1; d > 0; d-- {
		at, k := trace[d], x-y
		equal(step(at, k, d, most))
		if down(at, k, d, most) {
			y--
			out = append(out, edit{'+', b[y]})
		} else {
			x--
			out = append(out, edit{'-', a[x]})
		}
	}
	equal(0)
	slices.Reverse(out)
	return out
}

// replaced is that all of a goes and all of b comes.
func replaced(a, b []string) []edit {
	var out []edit
	for _, line := range a {
		out = append(out, edit{'-', line})
	}
	for _, line := range b {
		out = append(out, edit{'+', line})
	}
	return out
}
