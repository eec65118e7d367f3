package analyze

import (
	"strings"

	"github.com/ashore-mesh/ashore/push"
)

// hostSet are "namespace/host" patterns of a Gateway or a Sidecar: namespaces by host. The namespace "*" is any.
type hostSet map[string]map[string]bool

// add takes in a pattern; "." is the namespace own, "~" is none.
func (x hostSet) add(pattern, own string) {
	ns, host, _ := strings.Cut(pattern, "/")
	switch ns {
	case "~":
		return
	case ".":
		ns = own
	}
	if x[host] == nil {
		x[host] = map[string]bool{}
	}
	x[host][ns] = true
}

// covers says whether some pattern covers a host, or a part of it when it is a wildcard, of a namespace.
func (x hostSet) covers(namespace, host string) bool {
	has := func(pattern string) bool { return x[pattern]["*"] || x[pattern][namespace] }
	for p := host; p != ""; p = push.WiderHost(p) {
		if has(p) {
			return true
		}
	}
	if !strings.HasPrefix(host, "*") {
		return false
	}
	for pattern := range x {
		if push.HostsOverlap(pattern, host) && has(pattern) {
			return true
		}
	}
	return false
}
