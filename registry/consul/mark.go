package consul

import (
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// While ashored does not run, nobody sees Consul's index go backwards, as it does when its state is restored, or lost. So what is kept
// of a service is marked with the index of the names of all services then. A Consul whose names have a lower one at the start is of
// before: what it does not have it has lost.

// mark is a mark of what was said by the Consul at this address, when the names of all services had an index; empty: none is known.
func (k *keeper) mark(index uint64) string {
	if index == 0 {
		return ""
	}
	return strconv.FormatUint(index, 10) + " " + k.o.Address
}

// marked is the highest index that what was kept of a place is marked with; zero: it is not, or another Consul said it, which counts by
// itself.
func (k *keeper) marked(at place) (highest uint64) {
	for group, u := range k.kept {
		if _, of := at.service(group); of {
			highest = max(highest, k.indexIn(u))
		}
	}
	return highest
}

func (k *keeper) indexIn(u feed.Update[registry.Instances]) uint64 {
	number, address, _ := strings.Cut(u.Mark, " ")
	index, err := strconv.ParseUint(number, 10, 64)
	if err != nil || address != k.o.Address {
		return 0
	}
	return index
}

// remark marks what is known of the services of a place with the index of the names of all. The goroutine of keeper.loop calls it.
func (k *keeper) remark(sc *scope, index uint64) {
	sc.mark = k.mark(index)
	for _, all := range []map[string]*service{sc.services, sc.lost} {
		for _, s := range all {
			if s.mark != "" && s.mark != sc.mark {
				s.mark = sc.mark
				k.post(s.group, s)
			}
		}
	}
}
