// Package audit writes the log of what matters to security: who made and used tokens and
// certificates, who was refused and why, who changed what, and who read dumps.
//
// Log is a file of JSON lines that is only appended to. Record writes an Event; Tail returns
// the latest ones. At a size the file is renamed to "….1", the one before to "….2" and so
// on.
//
// Record never fails: an event that cannot be written goes to the program's log, and is counted and
// reported as a problem. A line audit.gap counts what is missing. Record returns when the line is
// with the kernel. Lines are synced to the disk within a second.
//
// Callers pass no secrets. What looks like a token or a private key is hidden all the same.
package audit
