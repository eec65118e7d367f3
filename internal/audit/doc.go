// Package audit keeps the log of what matters to security: who made and used tokens and certificates, who was
// refused and why, who changed what and who read dumps. It is a file of JSON lines that is only ever appended to.
//
// Log is the open file. Record hands it one Event; Tail reads the latest ones and follows.
//
// What it promises. Record never fails its caller and never holds it up for long, for a full or hanging disk must not
// stop the mesh: it returns when the line is with the kernel, so that it survives the end of the process, or after
// 100 ms at most. What cannot be written is not lost silently: it goes to the program's own log, is counted
// (ashore_audit_lost_total), and a line of its own (audit.gap) says how many are missing: it is written within a second of
// when the disk takes lines again, whether or not anything else happens, and at the latest by Close.
// Lines are synced to the disk within a second: a loss of power may cost the last second.
//
// A line that a loss of power has torn is closed at the next opening; readers pass over it. The file is 0600. At a size
// it is renamed to "….1", what was that to "….2" and so on; the oldest is removed.
//
// No secret is ever in it: callers hand over none, and what looks like a token or a key is blacked out all the same.
package audit
