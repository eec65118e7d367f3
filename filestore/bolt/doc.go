// Package bolt stores what ashored must remember in one bbolt file, "ashore.db" in the state
// folder.
//
// Store is the open file. It is a config.Store (objects, with the history of their writes) and a
// feed.Store (the last known good content of sources). Records returns it as a record.Store.
//
// A write is on the disk when it returns: it survives the end of the process and a loss of power.
// One process at a time uses a state folder. After an unclean stop New has bbolt check the
// structure of the file before it is used. While the disk is full or read-only, or the file is
// missing, writes are refused and reads continue; see Watch.
//
// bbolt has no checksums over content: a flipped bit inside a value may go unnoticed.
package bolt
