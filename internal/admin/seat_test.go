package admin

import "testing"

// One user, and all of them together, hold so many connections and no more; what is given back can
// be taken again.
func TestSeats(t *testing.T) {
	t.Parallel()
	s := newSeats(nil)
	var leave func()
	for i := range maxUserSeats {
		if leave = s.take(4242, true); leave == nil {
			t.Fatalf("no seat after %d", i)
		}
	}
	if s.take(4242, true) != nil {
		t.Error("a user has one more than may be")
	}
	leave()
	leave() // a second time it is nothing
	if s.take(4242, true) == nil || s.take(4242, true) != nil {
		t.Error("what was given back is not one seat")
	}
	uid := uint32(5000)
	for s.tally.taken < maxSeats {
		if s.take(uid, true) == nil {
			t.Fatalf("no seat for user %d", uid)
		}
		uid++
	}
	if s.take(9999, true) != nil || s.take(0, false) != nil {
		t.Error("somebody has a seat when all are taken")
	}
	if s.take(0, true) == nil {
		t.Error("root has no seat")
	}
}
