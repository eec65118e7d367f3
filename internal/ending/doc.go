// Package ending has a program end in order at the first signal, and at once at the second, and
// tells what made it end where its log is read by programs.
package ending
