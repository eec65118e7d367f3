package registry

import (
	"slices"
	"strconv"
	"strings"
)

// PortState is the state of a port, as found by the agent of the workload.
type PortState string

// The states of a port.
const (
	// PortServed means that the workload's address accepts connections at the port. It is also the
	// state of a port that was not checked.
	PortServed PortState = ""
	// PortClosed means that nothing listens.
	PortClosed PortState = "closed"
	// PortLoopback means that the application listens on a loopback address alone, and nothing on
	// the workload's address.
	PortLoopback PortState = "loopback"
	// PortListener is PortLoopback with the listener of the workload's proxy on the workload's
	// address.
	PortListener PortState = "listener"
)

// PortStates holds the states of a workload's ports that are not PortServed, by number:
// "8080=closed,9090=listener".
type PortStates string

// maxPortStates is the greatest number of ports of a workload with a state.
const maxPortStates = 64

// ReadPortStates parses the states that an agent reported, "8080=closed". It ignores invalid ones,
// and those after the first 64.
func ReadPortStates(reported []string) PortStates {
	known := map[uint32]PortState{}
	for _, text := range reported {
		number, state, _ := strings.Cut(text, "=")
		port, err := strconv.ParseUint(number, 10, 16)
		ok := slices.Contains([]PortState{PortClosed, PortLoopback, PortListener}, PortState(state))
		if err == nil && port > 0 && ok && len(known) < maxPortStates {
			known[uint32(port)] = PortState(state)
		}
	}
	return NewPortStates(known)
}

// NewPortStates formats states, sorted by port.
func NewPortStates(states map[uint32]PortState) PortStates {
	ports := make([]uint32, 0, len(states))
	for port, state := range states {
		if state != PortServed {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	var b strings.Builder
	for i, port := range ports {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(uint64(port), 10) + "=" + string(states[port]))
	}
	return PortStates(b.String())
}

// List returns one text for each port, as ReadPortStates parses them.
func (p PortStates) List() []string {
	if p == "" {
		return nil
	}
	return strings.Split(string(p), ",")
}

// Without returns the states without the ports that have a given state.
func (p PortStates) Without(state PortState) PortStates {
	return PortStates(strings.Join(slices.DeleteFunc(p.List(), func(one string) bool {
		return strings.HasSuffix(one, "="+string(state))
	}), ","))
}

// In returns the ports that have one of these states: "80, 81".
func (p PortStates) In(states ...PortState) string {
	var out []string
	for _, one := range p.List() {
		if number, state, _ := strings.Cut(one, "="); slices.Contains(states, PortState(state)) {
			out = append(out, number)
		}
	}
	return strings.Join(out, ", ")
}

// At returns the state of a port.
func (p PortStates) At(port uint32) PortState {
	if p == "" {
		return PortServed
	}
	want := strconv.FormatUint(uint64(port), 10)
	for one := range strings.SplitSeq(string(p), ",") {
		if number, state, _ := strings.Cut(one, "="); number == want {
			return PortState(state)
		}
	}
	return PortServed
}
