package record

// Follower is a Store that several replicas write. It may lose the connection to the others.
type Follower interface {
	Store
	// Behind returns why reads may miss writes of other replicas. Nil means that they see every
	// write.
	Behind() error
}
