package kube

import "context"

// Changes are changes that watches make to the state of a source. The goroutine that owns the state
// receives and calls them. Do not buffer the channel: a change is dropped once its watch has ended.
type Changes chan func()

// Do has the receiver call change. It returns when the receiver has it. If ctx is done before, change
// is not called.
func (c Changes) Do(ctx context.Context, change func()) {
	f := func() {
		if ctx.Err() == nil {
			change()
		}
	}
	select {
	case <-ctx.Done():
	case c <- f:
	}
}
