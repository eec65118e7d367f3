package config

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// What cannot be read is taken out, and the rest of the object is checked all the same, so that all
// that is wrong with it is told at once. What may be wrong because something was taken out is not
// told: it would send people to what is right.

// maxRefused is how many values of an object may be refused for the rest to be checked. With more
// there is little left to check.
const maxRefused = 64

// refusals are what was taken out of an object.
type refusals struct {
	// paths are the fields: of a value in a list or map that of the whole of it.
	paths []string
	// doubts are objects in which something may mean something else than it would with what was
	// taken out.
	doubts []doubt
}

// doubt is an object in which something is missing.
type doubt struct {
	path string
	// deep says that what its other fields hold is concerned too, and not only whether they are
	// there.
	deep bool
}

// note notes the value at hand as refused.
func (d *decoder) note() {
	if len(d.refused.paths) > maxRefused {
		return // nothing is checked then
	}
	steps := d.fieldSteps()
	d.refused.paths = append(d.refused.paths, pathText(steps, 0))
	d.doubt(steps, false)
}

// doubt notes that something is missing in the object that a field is in.
func (d *decoder) doubt(field []step, deep bool) {
	if len(field) > 1 && len(d.refused.paths) <= maxRefused {
		d.refused.doubts = append(d.refused.doubts, doubt{pathText(field[:len(field)-1], 0), deep})
	}
}

// fieldSteps is the path of the field that the value at hand is in.
func (d *decoder) fieldSteps() []step {
	steps := d.path
	for len(steps) > 0 {
		if last := steps[len(steps)-1]; last.index < 0 && !last.key && last.name != "<<" {
			break
		}
		steps = steps[:len(steps)-1]
	}
	return steps
}

// noteMeant notes what else may mean something else when something of a field was refused: before
// is how much was until then.
func (d *decoder) noteMeant(fd protoreflect.FieldDescriptor, before int) {
	switch {
	case len(d.refused.paths) == before:
	case fd.Enum() != nil:
		d.doubt(d.fieldSteps(), true)
	case meantElsewhere(fd):
		d.refused.doubts = append(d.refused.doubts, doubt{"spec", true})
	case fd.Message() != nil && fd.Message().Name() == "HTTPMatchRequest": // a route that takes more leaves less to those after it
		d.refused.doubts = append(d.refused.doubts, doubt{"spec.http", false})
	}
}

// meantElsewhere says that other parts of an object refer to a field, or mean something by it
// alone: ports are named by endpoints, are shared by servers and say what TLS is for; ports of
// policies are those of workloads that are selected; names that a route matches are among its
// hosts.
func meantElsewhere(fd protoreflect.FieldDescriptor) bool {
	if fd.Message() == nil {
		return fd.FullName() == "istio.networking.v1alpha3.VirtualService.hosts"
	}
	return slices.Contains([]protoreflect.Name{"Port", "ServicePort", "SidecarPort", "WorkloadSelector"},
		fd.Message().Name())
}

// checkable says that enough of the object was read to check it.
func (d *decoder) checkable() bool {
	return len(d.refused.paths) <= maxRefused && d.visits <= d.maxVisits
}

// own are those of problems that are not there because something was refused.
func (r refusals) own(problems []Problem) []Problem {
	return slices.DeleteFunc(problems, func(p Problem) bool { return r.cause(p.Field) })
}

// cause says that a problem of a field may be there because of what was refused: it is about that,
// what that is in, or what stands beside it.
func (r refusals) cause(field string) bool {
	return slices.ContainsFunc(r.paths, func(p string) bool { return within(field, p) || within(p, field) }) ||
		slices.ContainsFunc(r.doubts, func(a doubt) bool {
			return within(field, a.path) && field != a.path &&
				(a.deep || !strings.ContainsAny(field[len(a.path)+1:], ".["))
		})
}

// within says that a field is another one, or in it.
func within(field, outer string) bool {
	rest, ok := strings.CutPrefix(field, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
