// Package testchild starts programs that do not outlive the test that started them, also when that
// test is killed or times out.
package testchild
