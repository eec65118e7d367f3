package analyze

import (
	"strings"

	"github.com/ashore-mesh/ashore/push"
)

// hostSet holds the "namespace/host" patterns of a Gateway or a Sidecar: the namespaces of each host. The namespace "*"
// stands for all.
type hostSet map[string]map[string]bool

// add adds a pattern. Its namespace "." stands for namespace, and "~" for none.
func (x hostSet) add(pattern, namespace string) {
	ns, host, _ := strings.Cut(pattern, "/")
	switch ns {
	case "~":
		return
	case ".":
		ns = namespace
	}
	if x[host] == nil {
		x[host] = map[string]bool{}
	}
	x[host][ns] = true
}

// covers reports whether a pattern covers a host of a namespace. It is enough if it covers a part of a wildcard host.
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
