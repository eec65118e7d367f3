package push

// selectsAll says whether wide selects everything that narrow does.
func selectsAll(wide, narrow map[string]string) bool {
	for k, v := range wide {
		if have, ok := narrow[k]; !ok || have != v {
			return false
		}
	}
	return true
}
