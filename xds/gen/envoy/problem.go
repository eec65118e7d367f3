package envoy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Validated is a message that knows the rules of its fields.
type Validated interface{ Validate() error }

// CheckAll finds what breaks the rules of messages.
func CheckAll(messages ...Validated) error {
	for _, m := range messages {
		if err := m.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// CheckWrapped finds what breaks the rules of wrapped messages.
func CheckWrapped(wrapped map[string]*anypb.Any) error {
	for _, name := range slices.Sorted(maps.Keys(wrapped)) { // the same one of several each time
		a := wrapped[name]
		if a == nil {
			continue
		}
		m, err := a.UnmarshalNew()
		if v, ok := m.(Validated); ok && err == nil {
			err = v.Validate()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Refused is a part that Envoy would refuse, as a problem. o is the object that it is made of; nil:
// none.
func Refused(o *config.Object, what string, err error) *feed.Problem {
	return ProblemOf(o, feed.Error, what+": Envoy would refuse it: "+strings.TrimSpace(err.Error()))
}

// ProblemOf is a problem of an object; nil: of none.
func ProblemOf(o *config.Object, severity feed.Severity, text string) *feed.Problem {
	p := &feed.Problem{Severity: severity, Text: text}
	if o != nil {
		p.Object, p.File, p.Line = o.Key.String(), o.Origin.File, o.Origin.Line
	}
	return p
}
