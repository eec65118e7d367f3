package consulhttp

import "os"

// Exposure warns about a remote plain-HTTP address and about a world-accessible token file.
// networkRisk and tokenRisk complete the sentences: what an attacker can do with network access, or
// with the token.
func Exposure(address, tokenFile, networkRisk, tokenRisk string, warn func(option, format string, args ...any)) {
	if Exposed(address) {
		reads := ""
		if tokenFile != "" {
			reads = "reads the token, and "
		}
		warn("address", "%s is a remote host over plain HTTP: an attacker on the network %s%s; use https or the local agent", address, reads, networkRisk)
	}
	// a missing file is reported when it is read
	if info, err := os.Stat(tokenFile); err == nil && info.Mode()&0o006 != 0 {
		warn("tokenFile", "%s: every local user can read or change it (mode %04o), and whoever has the token %s; run chmod 600 and replace the token", tokenFile, info.Mode().Perm(), tokenRisk)
	}
}
