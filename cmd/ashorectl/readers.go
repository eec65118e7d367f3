package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// namedKinds is how many kinds of a reader are named in its row; of more their number is told.
const namedKinds = 2

// isObjects says that a type is one of configuration objects.
func isObjects(t admin.TypeStatus) bool { return t.Objects != "" }

// apart are the proxies of all, and the control planes that read configuration, each with the types
// that it is there for. Who is both is among both.
func apart(all []admin.ProxyStatus) (proxies, readers []admin.ProxyStatus) {
	for _, p := range all {
		every := p.Types
		p.Types = slices.DeleteFunc(slices.Clone(every), isObjects)
		if len(p.Types) > 0 || len(every) == 0 && !p.Reader {
			proxies = append(proxies, p)
		}
		p.Types = slices.DeleteFunc(slices.Clone(every), func(t admin.TypeStatus) bool { return !isObjects(t) })
		if len(p.Types) > 0 || p.Reader {
			readers = append(readers, p)
		}
	}
	return proxies, readers
}

// readersTable has a row for each control plane that reads configuration, after an empty line;
// nothing when there is none.
func readersTable(w io.Writer, readers []admin.ProxyStatus, now time.Time) error {
	if len(readers) == 0 {
		return nil
	}
	var rows [][]string
	for _, p := range readers {
		kinds, objects := reads(p)
		refused := "-"
		if n := len(refusals(p)); n > 0 {
			refused = fmt.Sprint(n)
		}
		rows = append(rows, []string{p.ID, p.Peer, ago(now, p.Connected), fmt.Sprint(kinds), fmt.Sprint(objects),
			step(p), refused})
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return columns(w, []string{"READER", "PEER", "CONNECTED", "KINDS", "OBJECTS", "STATE", "REFUSED"}, rows)
}

// reads is how many kinds a reader asked for, and how many objects there are of them: each kind
// once, by however many names.
func reads(p admin.ProxyStatus) (kinds, objects int) {
	most := map[string]int{}
	for _, t := range p.Types {
		most[t.Objects] = max(most[t.Objects], t.Resources)
	}
	for _, n := range most {
		objects += n
	}
	return len(most), objects
}

// step is whether a reader has all that it is to have, and else of which kinds not: "sent: Gateway;
// behind: Sidecar".
func step(p admin.ProxyStatus) string {
	var sent, behind []string
	for _, t := range p.Types {
		switch {
		case t.Latest:
		case t.InFlight > 0:
			sent = append(sent, t.Objects)
		default:
			behind = append(behind, t.Objects)
		}
	}
	var parts []string
	for _, part := range []struct {
		word  string
		kinds []string
	}{{"sent", sent}, {"behind", behind}} {
		if len(part.kinds) > 0 {
			parts = append(parts, part.word+": "+someOf(part.kinds))
		}
	}
	if len(parts) == 0 {
		return "in step"
	}
	return strings.Join(parts, "; ")
}

// someOf names the first of kinds, each once, and how many more there are.
func someOf(kinds []string) string {
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	if more := len(kinds) - namedKinds; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(kinds[:namedKinds], ", "), more)
	}
	return strings.Join(kinds, ", ")
}
