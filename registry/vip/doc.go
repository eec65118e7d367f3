// Package vip allocates virtual IPs for hosts, and keeps the allocations in the store.
//
// An Allocator runs in the background, and nothing waits for it. Each host gets an IPv4 and an IPv6
// address. The search for a free one starts at a hash of the host, so a new store gives mostly the
// same addresses. An allocation lasts until Release frees it, after no replica used the host for a
// week.
package vip
