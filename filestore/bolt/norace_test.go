//go:build !race

package bolt

// raceEnabled says that these tests run with the race detector.
const raceEnabled = false
