package config

// nearest is the name among names that name was most likely meant to be; empty when none is near, or
// when there is too much to compare: a hint must not cost more than the file that it is about.
func nearest(name string, names []string) string {
	if len(name) > 64 || len(names) > 200 {
		return ""
	}
	best, least := "", min(len(name), 1+max(1, len(name)/3))
	for _, n := range names {
		if d := distance(name, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is how many letters must be changed, added, removed or swapped with their neighbour to
// make b of a. Letters count as bytes, and a different case as nothing.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if lower(a[i-1]) == lower(b[j-1]) {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && lower(a[i-1]) == lower(b[j-2]) && lower(a[i-2]) == lower(b[j-1]) {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// didYouMean is the hint that follows an unknown name, with its leading separator; empty when no
// name is near.
func didYouMean(name string, names []string) string {
	if n := nearest(name, names); n != "" {
		return ", did you mean " + quote(n) + "?"
	}
	return ""
}
