package consulhttp

import "os"

// Exposure tells what others may get hold of by the options address and tokenFile, of whoever asks
// Consul. Who is on the way, or has the token, gains something by it: so the sentences end.
func Exposure(address, tokenFile, onTheWay, withToken string, warn func(option, format string, args ...any)) {
	if Exposed(address) {
		reads := ""
		if tokenFile != "" {
			reads = "reads the token, and "
		}
		warn("address", "%s is another machine, and http: who is on the way %s%s; use https, or the agent of this machine", address, reads, onTheWay)
	}
	// one that is not there is told of elsewhere
	if info, err := os.Stat(tokenFile); err == nil && info.Mode()&0o006 != 0 {
		warn("tokenFile", "%s: every user of this machine can read or change it (mode %04o), and who has it %s: chmod 600 it, and make a new token", tokenFile, info.Mode().Perm(), withToken)
	}
}
