// Package store tests writes of operators with ashorectl, against a real ashored. What they apply
// reaches real Envoys completely or not at all, also if a program is killed or interrupted, or the
// disk is full.
package store
