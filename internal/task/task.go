package task

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Part is a part of a program, which runs until the program ends.
type Part struct {
	// Name is the prefix of the part's error: "metrics server".
	Name string
	// Run blocks until ctx ends and then returns nil or ctx's error. It may return nil earlier; the
	// other parts continue. Any other error ends the program.
	Run func(ctx context.Context) error
}

// PanicError is a panic of a part.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Run runs all parts, and returns when the last one has ended. The context of all parts ends when
// ctx ends or a part fails. Run returns the error of the part that failed first, with its name.
func Run(ctx context.Context, parts ...Part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	failed := make(chan error, len(parts))
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			if err := p.run(ctx); err != nil {
				failed <- err
				cancel(err)
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// run calls Run and adds the name to the error. The end of ctx is not an error.
func (p Part) run(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s: %w", p.Name, &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	err = p.Run(ctx)
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return fmt.Errorf("%s: %w", p.Name, err)
}
