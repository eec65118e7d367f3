// Package connlimit limits open connections.
//
// A Limiter has a limit in total and one for each key. A Listener uses one for clients that have
// not authenticated, with the source address as the key. So one client cannot exclude all others. A
// connection that exceeds a limit is closed when it is accepted. A connection counts until it is
// closed or, by Leave, belongs to an authenticated client.
package connlimit
