// Package connlimit limits the connections of clients that have not authenticated.
//
// A Listener has a limit in total and one for each source address, so that one client does not keep
// all others out. A connection that exceeds a limit is closed when it is accepted. A connection
// counts until it is closed or, by Leave, belongs to an authenticated client.
package connlimit
