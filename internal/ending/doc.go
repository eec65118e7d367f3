// Package ending has a program end in order at the first signal, and at once at the second.
package ending
