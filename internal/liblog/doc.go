// Package liblog has what libraries say of themselves, gRPC's and those that use Go's own log,
// stand in the log of the program, in its format and at its level, instead of on standard error
// beside it.
//
// A Log is theirs for the whole process: programs set it in main, and have it follow their log once
// they have one. What a connection comes to is told by who has it; this is for what is told nowhere
// else.
package liblog
