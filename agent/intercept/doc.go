// Package intercept redirects a machine's TCP connections to Envoy and its DNS queries to the agent.
//
// The rules are one nftables table, "inet ashore". Outbound connections are redirected to Envoy's
// port 15001 and inbound ones are handed to port 15006 by TPROXY. Render writes the table from a
// Config. Install replaces it in one transaction, checks that the machine still works, and removes
// it again otherwise. Boot installs what was confirmed before, and Watch keeps it installed. Remove
// ends interception for new connections; Delete leaves nothing behind.
//
// Envoy and the agent are recognised by their group and Envoy by its user, so their own connections
// are never intercepted. The package runs nft and ip; it needs root.
package intercept
