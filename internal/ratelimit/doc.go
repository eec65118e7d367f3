// Package ratelimit limits how often each of many keys, such as peers or identities, may cause
// something.
//
// Limiter holds a token bucket for each key, in bounded memory. It has no clock: time is an
// argument. Logger writes log lines that peers can cause at will, and limits them.
package ratelimit
