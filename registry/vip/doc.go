// Package vip allocates virtual IPs for hosts that have none, and keeps them in the store.
//
// An Allocator runs in the background: nothing waits for it. Each host gets an IPv4 and an IPv6 address. The search for a free
// address starts at a hash of the host, so that a new store gives mostly the same addresses. An address belongs to its
// host until Release frees those that were not used for a week; nothing else takes it back.
package vip
