package nearest

// Name returns the known name that is most similar to name, ignoring case. At most a third of the
// letters differ, or one in a short name. It returns an empty text if there is none. It compares
// name with all known names.
func Name(name string, known []string) string {
	return Within(min(len(name)-1, max(1, len(name)/3)), name, known)
}

// Within returns the known name that differs from name in the fewest letters, and in at most limit
// letters. It returns an empty text if there is none.
func Within(limit int, name string, known []string) string {
	best, least := "", limit+1
	for _, k := range known {
		if len(k)-len(name) >= least || len(name)-len(k) >= least {
			continue
		}
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns the number of bytes to change, add, remove or swap with the next to turn a into
// b, ignoring case.
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
