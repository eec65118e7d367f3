package server

import "github.com/ashore-mesh/ashore/filestore/consul"

// sharedMetrics reports the state of the store in Consul.
func sharedMetrics(store *consul.Store) func(emitFunc) {
	return func(emit emitFunc) {
		n, reachable := store.Counts(), store.Standing().Error == ""
		emit("ashore_store_in_touch", "1 while the shared store can be read.", truth(reachable))
		emit("ashore_store_writable", "1 while the shared store can be read and Consul accepts writes to it.",
			truth(reachable && store.Refused().Error == ""))
		for log, revision := range n.Revisions {
			emit("ashore_store_sequence",
				"The number of the newest entry that this replica has of a log of the shared store.",
				float64(revision), "log", log)
		}
		emit("ashore_store_entries_written_total", "Entries that this replica wrote to the shared store.",
			float64(n.Written))
		emit("ashore_store_races_total", "Writes that were retried because another replica wrote first.",
			float64(n.Lost))
		emit("ashore_store_unknown_writes_total",
			"Writes with an unknown outcome, because Consul's answer was lost.", float64(n.Unknown))
	}
}
