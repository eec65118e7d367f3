package push

// SelectsAll reports whether labels has every pair of want. An empty want selects everything.
func SelectsAll(want, labels map[string]string) bool {
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
