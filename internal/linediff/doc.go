// Package linediff shows how two texts differ, in the unified form that people know from "diff -u".
// It finds the fewest lines that make one of the other, up to a bound beyond which it shows a
// stretch as replaced.
package linediff
