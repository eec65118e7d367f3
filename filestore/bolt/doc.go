// Package bolt keeps what ashored has to remember in one bbolt file, "ashore.db" in the state folder:
// objects with the history of their writes, the last good content of sources, and the records of what
// replicas share besides configuration.
//
// Store is the whole of it: a config.Store, a feed.Store, and by Records a record.Store. What it
// acknowledged survives the end of the process and of power. Every record carries a checksum, and the
// file one over all records, because bbolt itself guards only its first two pages.
//
// bbolt may take a process down, or keep it busy for ever, when a file is damaged. So New has the file
// checked in a child process first (Check runs there), and never writes to one that it does not trust.
// One process at a time holds a state folder.
//
// The package keeps nothing that can be found out anew: no health, no endpoints, no registrations.
package bolt
