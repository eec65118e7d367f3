package filestore

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// An object that takes a name which another file has is not in use, and what it was before stays as it does beside any
// other error. That is no matter of the file's content alone: it ends when the other file lets go.

// clashes says that another file defined one of these objects of a file before it did.
func (f *folder) clashes(x *file, objects []*config.Object) bool {
	return slices.ContainsFunc(objects, func(o *config.Object) bool { return f.takenBefore(x, o.Key) })
}

// takenBefore says that a file which is there, other than x, defined an object of its own before x did. One that is away may be x
// under its old name.
func (f *folder) takenBefore(x *file, k config.Key) bool {
	for _, c := range f.owners[k] {
		if c.file == x.name {
			return false
		}
		if y := f.files[c.file]; y != nil && !y.isGuest(k) && f.there(c.file) {
			return true
		}
	}
	return false
}

// reconsider has a file read again when it clashes with no other one any more.
func (f *folder) reconsider(name string) {
	x := f.files[name]
	if x == nil || !x.clashing || f.clashes(x, slices.DeleteFunc(slices.Clone(x.objects), func(o *config.Object) bool { return x.held[o.Key] })) {
		return
	}
	x.stamp, x.digest = stamp{}, [sha256.Size]byte{}
	f.pending.touch(name, false, time.Now())
}
