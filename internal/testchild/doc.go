// Package testchild starts programs that do not outlive the test that started them, also when that
// test is killed or runs out of time and no clean-up of its own runs.
package testchild
