package record

import "context"

// Mark is a moment of a table. Nil is before anything was written. It is of use to the store that
// made it alone.
type Mark any

// Changer is a Store that tells what has changed, so that who follows a large table need not list
// it each time.
type Changer interface {
	Store
	// Changes returns the records of a table that are others than at a mark, those that are gone
	// with an empty Version, and the mark of what it returns. Since nil, these are all.
	Changes(ctx context.Context, table string, since Mark) ([]Record, Mark, error)
}
