package admin

import (
	"context"
	"fmt"
	"time"
)

// maxQueue is how many may be served or wait in one queue: the others find other slots for
// requests.
const maxQueue = 4

// queue has one at a time do what takes much, and a few others wait. Safe for concurrent use.
type queue struct {
	places *places       // one for each who is served or waits
	turn   chan struct{} // for who is served
}

func newQueue() queue {
	return queue{places: newPlaces(maxQueue, "%d others use the store, or wait for it%s: try again"),
		turn: make(chan struct{}, 1)}
}

// wait does something when it is its turn. Errors: ErrBusy, ctx's, or those of do.
func (q *queue) wait(ctx context.Context, a asker, do func() (any, error)) (any, error) {
	leave, err := q.places.take(a)
	if err != nil {
		return nil, err
	}
	defer leave()
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, NewError(ErrBusy, fmt.Sprintf("others used the store for %s: try again", answerTime))
	}
	return do()
}
