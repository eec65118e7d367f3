package record

// Follower is a Store that keeps up with what other replicas write, and may be out of touch with
// them.
type Follower interface {
	Store
	// Behind says why reads go by what was known last, to which others may have added; nil: they
	// see every write.
	Behind() error
}
