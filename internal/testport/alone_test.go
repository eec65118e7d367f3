package testport

import (
	"testing"
	"time"
)

// The second one waits for the first.
func TestAlone(t *testing.T) {
	t.Parallel()
	first, err := Alone("testport/alone")
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		lock, err := Alone("testport/alone")
		if err == nil {
			err = lock.Close()
		}
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}
