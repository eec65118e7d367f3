package bolt

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens the store of dir and closes it with the test.
func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// A store that was closed opens again, and its file passes the check.
func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		s := open(t, Config{Dir: dir})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := Check(s.path); err != nil {
			t.Fatalf("check: %v", err)
		}
	}
}
