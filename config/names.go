package config

import (
	"cmp"
	"net/netip"
	"path"
	"strings"
	"unicode/utf8"
)

// The checks of this file return what is wrong with a text, or nothing.

// checkObjectName is Kubernetes' rule for the names of objects: a DNS name in lower case.
func checkObjectName(name string) string {
	if name == "" {
		return "the name is missing: every object needs one"
	}
	if len(name) > 253 {
		return "the name has more than 253 characters"
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label, false, len(name)) {
			return quote(name) + " is not a name: use lower-case letters, digits, \"-\" and \".\", and begin and end with a letter or digit"
		}
	}
	return ""
}

// checkDNSLabel is the rule for namespaces.
func checkDNSLabel(name string) string {
	if !isLabel(name, false, 63) {
		return quote(name) + " is not a name: use at most 63 lower-case letters, digits and \"-\", and begin and end with a letter or digit"
	}
	return ""
}

// checkSubset is the rule for the names of subsets, which become part of a cluster's name and of an
// SNI.
func checkSubset(name string) string {
	if name == "" {
		return "the name of the subset is missing"
	}
	if !isLabel(name, true, 63) {
		return quote(name) + " is not the name of a subset: use at most 63 letters, digits and \"-\", and begin and end with a letter or digit"
	}
	return ""
}

// checkPortName is the rule for the names of ports. It is that of labels; upper case is let through
// as Istio does.
func checkPortName(name string) string {
	if name == "" {
		return "the port has no name: give it one that begins with its protocol, such as http-web"
	}
	if !isLabel(name, true, 63) {
		return quote(name) + " is not a port name: use letters, digits and \"-\", and begin and end with a letter or digit"
	}
	return ""
}

// isLabel says whether s can be one label of a DNS name.
func isLabel(s string, upper bool, limit int) bool {
	if s == "" || len(s) > limit || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i], upper) && s[i] != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(b byte, upper bool) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || upper && 'A' <= b && b <= 'Z'
}

// checkLabel is Kubernetes' rule for labels. Source:
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func checkLabel(key, value string) string {
	if why := checkQualifiedName(key); why != "" {
		return why
	}
	if value == "" {
		return ""
	}
	if !isToken(value) {
		return "the value " + quote(value) + " is not one of a label: use at most 63 letters, digits, \"-\", \"_\" and \".\", and begin and end with a letter or digit"
	}
	return ""
}

// checkAnnotation is Kubernetes' rule for annotations: any text under a qualified name.
func checkAnnotation(key, value string) string {
	const limit = 256 << 10
	if len(value) > limit {
		return "the value has more than 256 KiB"
	}
	if !utf8.ValidString(value) {
		return "the value is not UTF-8"
	}
	return checkQualifiedName(strings.ToLower(key))
}

// checkQualifiedName is the rule for the keys of labels: a name, after an optional DNS name and
// "/".
func checkQualifiedName(key string) string {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	} else if prefix == "" || checkObjectName(prefix) != "" {
		return quote(key) + " is not a key: what is before \"/\" must be a DNS name"
	}
	if !isToken(name) {
		return quote(key) + " is not a key: use at most 63 letters, digits, \"-\", \"_\" and \".\", and begin and end with a letter or digit"
	}
	return ""
}

// isToken says whether s is a name within a label.
func isToken(s string) bool {
	if s == "" || len(s) > 63 || !isAlphanumeric(s[0], true) || !isAlphanumeric(s[len(s)-1], true) {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i], true) && strings.IndexByte("-_.", s[i]) < 0 {
			return false
		}
	}
	return true
}

// checkHost is the rule for the full or short name of one host.
func checkHost(host string) string {
	if host == "" {
		return "the host is missing"
	}
	if strings.Contains(host, "*") {
		return quote(host) + " is a wildcard, and one host is needed here"
	}
	return checkWildcardHost(host)
}

// checkHostOrAddress is the rule for one host or one IP address.
func checkHostOrAddress(host string) string {
	if isAddress(host) {
		return ""
	}
	return checkHost(host)
}

// checkLowerHost is checkHost for the mesh's settings, which lowerHosts does not change.
func checkLowerHost(host string) string {
	if host != strings.ToLower(host) {
		return quote(host) + " has capitals: write it in lower case"
	}
	return checkHost(host)
}

// checkWildcardHost is the rule for host names whose first label may be "*".
func checkWildcardHost(host string) string {
	const limit = 255
	switch {
	case host == "":
		return "the host is missing"
	case len(host) > limit:
		return quote(host) + " has more than 255 characters"
	case host == "*":
		return ""
	case strings.HasSuffix(host, "."):
		return quote(host) + " ends with a dot: leave it out, so that all that names the host finds it"
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return cmp.Or(checkAddress(host), quote(host)+" is an address, and the name of a host is needed here")
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; strings.Trim(last, "0123456789") == "" && last != "" {
		return quote(host) + " is not a host name: the last part of one is not a number"
	}
	first, rest, dotted := strings.Cut(host, ".")
	if first != "*" && !isLabel(first, true, 63) {
		return badHost(host)
	}
	if !dotted {
		return ""
	}
	for label := range strings.SplitSeq(rest, ".") {
		if !isLabel(label, true, 63) {
			return badHost(host)
		}
	}
	return ""
}

func badHost(host string) string {
	if strings.Contains(host, "://") || strings.Contains(host, "/") {
		return quote(host) + " is not a host name: leave out the scheme and the path"
	}
	if _, port, ok := strings.Cut(host, ":"); ok && port != "" {
		return quote(host) + " is not a host name: leave out the port"
	}
	if strings.Contains(host, "*") {
		return quote(host) + " is not a host name: a wildcard stands alone or in front, as in *.example.com"
	}
	return quote(host) + " is not a host name: use letters, digits and \"-\", with \".\" between the parts"
}

// hostSet is a set of host names and wildcard patterns, in lower case.
type hostSet map[string]bool

func hostSetOf(hosts []string) hostSet {
	s := make(hostSet, len(hosts))
	for _, h := range hosts {
		s[strings.ToLower(h)] = true
	}
	return s
}

// covers says whether every name that host stands for is covered by one host of the set.
func (s hostSet) covers(host string) bool {
	host = strings.ToLower(host)
	if s[host] || s["*"] {
		return true
	}
	name := strings.TrimPrefix(host, "*")
	for i := range name {
		if s["*"+name[i:]] {
			return true
		}
	}
	return false
}

// checkAddress is the rule for one IP address.
func checkAddress(address string) string {
	a, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return quote(address) + " is not an IP address"
	case a.Zone() != "":
		return quote(address) + " names an interface behind \"%\", which has a meaning on one machine only: use an address without it"
	case a.Is4In6():
		return quote(address) + " is an IPv4 address: write it as " + a.Unmap().String()
	}
	return ""
}

// checkSubnet is the rule for one IP address or a block of them.
func checkSubnet(subnet string) string {
	if !strings.Contains(subnet, "/") {
		return checkAddress(subnet)
	}
	p, err := netip.ParsePrefix(subnet)
	if err != nil {
		return quote(subnet) + " is not a block of addresses: write it as 10.1.0.0/16"
	}
	return checkAddress(p.Addr().String())
}

// isAddress says whether s is an IP address.
func isAddress(s string) bool { return checkAddress(s) == "" }

// unixPrefix begins addresses that are a socket in the file system, or with "@" an abstract one.
const unixPrefix = "unix://"

// checkUnix is the rule for what follows unixPrefix.
func checkUnix(name string) string {
	// sun_path of sockaddr_un, with its final zero
	const limit = 107
	if name == "" || name[0] != '/' && name[0] != '@' || strings.HasSuffix(name, "/") {
		return quote(unixPrefix+name) + " is not a socket: write an absolute path, as in unix:///run/web.sock"
	}
	if len(name) > limit {
		return "the path of the socket has more than 107 characters"
	}
	return checkFileText(name)
}

// checkFile is the rule for the name of a file that proxies write.
func checkFile(name string) string {
	if !path.IsAbs(name) {
		return quote(name) + " is not an absolute path: write one, such as /dev/stdout"
	}
	return checkFileText(name)
}

func checkFileText(name string) string {
	if strings.ContainsFunc(name, isControl) {
		return quote(name) + " holds control characters"
	}
	return ""
}

// checkLocality is the rule for "region/zone/subzone", of which later parts may be left out.
func checkLocality(locality string) string {
	parts := strings.Split(locality, "/")
	if len(parts) > 3 {
		return quote(locality) + " is not a locality: write region/zone/subzone, or less"
	}
	for _, part := range parts {
		if part == "" || strings.Contains(part, "*") || strings.ContainsFunc(part, isControl) {
			return quote(locality) + " is not a locality: write region/zone/subzone, or less, and no part empty"
		}
	}
	return ""
}

// checkExportTo is the rule for namespaces to which an object is visible.
func checkExportTo(namespace string) string {
	switch namespace {
	case "*", ".":
		return ""
	case "~":
		return "only a ServiceEntry can be exported to no namespace (~)"
	}
	return checkDNSLabel(namespace)
}

// checkServiceExportTo is checkExportTo for services, which may be exported to none.
func checkServiceExportTo(namespace string) string {
	if namespace == "~" {
		return ""
	}
	return checkExportTo(namespace)
}

// isControl says that a rune never belongs into names, headers and paths.
func isControl(r rune) bool { return r < ' ' || r == 0x7f }
