package record

import "context"

// Mark is a point in the history of a table. Nil is before the first write. Only the store that
// returned it can use it.
type Mark any

// Changer is a Store that returns changes, so that a reader of a large table need not list it each
// time.
type Changer interface {
	Store
	// Changes returns the records of a table that changed since a mark, and the mark for the next
	// call. A deleted record has an empty Version. Since nil, it returns all records.
	Changes(ctx context.Context, table string, since Mark) ([]Record, Mark, error)
}
