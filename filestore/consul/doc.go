// Package consul is the store that several replicas of ashored share, in Consul's KV.
//
// Store is a config.Store (objects with the history of their writes) and, by Records, a
// record.Store. Below it are three logs: configuration, identity and registrations. A storm of
// writes in one does not delay the others.
//
// A log is a sequence of entries. An entry sets and deletes named records. Its values are absolute,
// so replicas that have read the same entries have the same state. A write is one transaction: it
// compares and sets the key head and creates the entry. If another replica was faster, the write is
// planned again on the new state. If the answer is lost, the same transaction is sent again until
// the outcome is known, for at most 15 seconds.
//
// Each replica has the state of each log in memory and, as a copy for a start while Consul is down,
// in its state folder. One goroutine for each log waits for changes of its head and reads the new
// entries. A read asks Consul whether head has changed, so it sees every write that ended before
// the read began, on any replica. While Consul is down, reads use memory and writes fail at once.
// No read waits for a write.
//
// Each entry names the one before by a random ID. If that is not the one that a replica has, Consul
// was restored from a snapshot, and the replica reads all of the log again. Missing or damaged keys
// are an outage: the state in memory stays, and the error names the key.
//
// Keys below PREFIX/LOG/:
//
//	head               the newest entry and the latest snapshot
//	log/REVISION       an entry
//	blob/REVISION-ID/  the parts of an entry that is too large for one key
//	snapshot/REVISION-ID/  the parts of a snapshot: all records as of a revision
package consul
