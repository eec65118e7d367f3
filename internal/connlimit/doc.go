// Package connlimit limits open connections.
//
// A Limiter has a limit in total and one for each key. A Listener uses one for clients that have not
// authenticated, with the source address as the key, so that one client does not keep all others
// out. A connection that exceeds a limit is closed when it is accepted. A connection counts until it
// is closed or, by Leave, belongs to an authenticated client.
package connlimit
