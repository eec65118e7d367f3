// Package consul keeps in Consul's KV what several ashored share: objects with the history of their
// writes, and the records of record.Store.
//
// All of it is one log below one prefix. A head names the newest entry; an entry is a change that
// is applied whole or not at all; what is too large for one key of Consul's stands in chunks that
// are written before. A write sets the head and its entry in one transaction, which fails when
// another replica was faster; then it looks at what that one wrote and tries again. Every replica
// waits for changes of the head alone, reads the entries that it lacks, and has the state in
// memory: the cost follows changes. Now and then one writes the whole state down as a snapshot, and
// older entries go.
//
// Store is the whole: a config.Store and a record.Store (Records). It is consistent: a read of
// records sees every write that ended before it began, on whichever replica, as long as Consul
// answers. While it does not, reads come from memory and writes fail. Entries form a chain by
// random IDs, so that a Consul whose state was restored from a snapshot is noticed: the store then
// starts over from what Consul holds, and never mixes two pasts. What cannot be read or makes no
// sense leaves the state as it was, and is told with the key that it stands at.
//
// Keys below the prefix:
//
//	head                 which entry is the newest, and where the snapshot is
//	tip/ID               that of the newest entry; there is one, and each write replaces it
//	entry/SEQUENCE       a change: a line about it, and its content
//	chunk/TIME-ID/N      a part of what is too large for one key
//	chunk/TIME-ID/mark   says that all parts are there; whoever deletes them begins with it
package consul
