package filestore

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// owners are the files that define each key, the first one known first: its definition counts.
type owners map[config.Key][]claim

// claim is one file's definition.
type claim struct {
	file   string
	object *config.Object
}

// set replaces what a file defines, and adds the keys to touched for whose other files something
// has changed by that.
func (o owners) set(x *file, touched map[config.Key]bool) {
	defined := make(map[config.Key]*config.Object, len(x.objects))
	for _, obj := range x.objects {
		defined[obj.Key] = obj
	}
	for _, k := range x.claims {
		if defined[k] != nil {
			continue
		}
		left := slices.DeleteFunc(o[k], func(c claim) bool { return c.file == x.name })
		if len(left) == 0 {
			delete(o, k)
		} else {
			o[k], touched[k] = left, true
		}
	}
	had := make(map[config.Key]bool, len(x.claims))
	for _, k := range x.claims {
		had[k] = true
	}
	x.claims = make([]config.Key, 0, len(x.objects)) // never nil: it was supplied
	for _, obj := range x.objects {
		x.claims = append(x.claims, obj.Key)
		list := o[obj.Key]
		if !had[obj.Key] {
			o[obj.Key] = append(list, claim{x.name, obj})
			continue
		}
		i := slices.IndexFunc(list, func(c claim) bool { return c.file == x.name })
		list[i].object = obj
		if i == 0 && len(list) > 1 { // the others name its line
			touched[obj.Key] = true
		}
	}
}

// split returns what counts of a file, and a problem for each object that another file defined first.
func (o owners) split(x *file) (items []*config.Object, clashes []config.Problem) {
	for _, obj := range x.objects {
		first := o[obj.Key][0]
		if first.file == x.name {
			items = append(items, obj)
			continue
		}
		if x.isGuest(obj.Key) {
			continue // the file does not define it
		}
		clashes = append(clashes, config.Problem{Severity: feed.Error, Object: obj.Key.String(), File: x.name, Line: obj.Origin.Line,
			Text: fmt.Sprintf("it is defined in %s too, which was first and counts: remove it from %s or from %s",
				place(first.file, first.object.Origin.Line), first.file, x.name)})
	}
	return items, clashes
}

func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}
