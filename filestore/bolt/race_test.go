//go:build race

package bolt

// raceEnabled says that these tests run with the race detector, which makes each child process several times slower.
const raceEnabled = true
