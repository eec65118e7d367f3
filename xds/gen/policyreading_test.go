package gen

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
)

// readPolicies says whether the policies of a scope let a call pass, by a plain reading of them.
//
// Source: istio.io, "Implicit enablement": CUSTOM, DENY, then ALLOW; where a policy allows, what
// none of them allows is denied. No provider can be asked here, so what a CUSTOM policy matches is
// denied.
func readPolicies(sc *push.Scope, call policyCall) bool {
	call.Host = strings.TrimSuffix(call.Host, ".")
	if ok, err := regexp.MatchString(validHosts, call.Host); !call.TCP && (err != nil || !ok) {
		return false
	}
	allows, allowed := false, false
	for _, o := range sc.AuthorizationPolicy.Items() {
		spec := o.Spec.(*security.AuthorizationPolicy)
		if access.IsDryRun(o) || spec.Action == security.AuthorizationPolicy_AUDIT {
			continue
		}
		allow := spec.Action == security.AuthorizationPolicy_ALLOW
		j := &ruleJudge{call: call, domains: trustDomains(sc.Mesh), namespace: o.Namespace, widen: !allow}
		matches := slices.ContainsFunc(spec.Rules, func(r *security.Rule) bool { return j.rule(r) == yes })
		if matches && !allow {
			return false
		}
		allows, allowed = allows || allow, allowed || matches
	}
	return allowed || !allows
}

// policyCall is a request or a connection as far as it is known. What is empty is not known, unless
// it says otherwise.
type policyCall struct {
	// TCP says that it is a connection of which nothing of HTTP is known.
	TCP bool
	// From is who calls, by its certificate. The zero value is a caller without one: nobody.
	From spiffe.ID
	// Source is who opened the connection, Remote the client that trusted proxies tell of,
	// Destination the address that it was for.
	Source, Remote, Destination netip.Addr
	// Port is what the connection was for; zero: not known.
	Port uint32
	// ServerName is what its TLS asked for.
	ServerName string
	// Method, Host and Path are the request's.
	Method, Host, Path string
	// Headers are all of the request, names in lower case, each with one value or several; nil: not
	// known.
	Headers map[string][]string
	// Claims are those of the request's token by their names, those of nested ones as "a][b"; each
	// has one value or several. Nil: not known; empty: the request has no token.
	Claims map[string][]string
}

// truth is whether a condition holds.
type truth uint8

const (
	no truth = iota
	// unsure: something that is not known decides.
	unsure
	yes
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// not is the opposite.
func (t truth) not() truth { return yes - t }

// known is match of a text, or unsure when there is none.
func known(text string, match func(string) bool) truth {
	if text == "" {
		return unsure
	}
	return truthOf(match(text))
}

// ruleJudge says whether rules of one policy match a call. It is a plain
// reading of the policy, with which the generated filters are compared.
type ruleJudge struct {
	call policyCall
	// domains are the mesh's trust domain and its aliases.
	domains []string
	// namespace is that of the policy.
	namespace string
	// widen says that the policy refuses: a condition that cannot be told is left out. In one that
	// allows, a rule with such a condition never matches.
	widen bool

	odd bool   // some condition of the rule cannot be told
	why string // the first condition that does not hold for sure
}

// rule says whether a rule matches.
func (j *ruleJudge) rule(r *security.Rule) truth {
	j.odd, j.why = r == nil, ""
	t := yes
	for _, w := range r.GetWhen() {
		t = min(t, j.condition(w))
	}
	from, to := truthOf(len(r.GetFrom()) == 0), truthOf(len(r.GetTo()) == 0)
	for _, f := range r.GetFrom() {
		from = max(from, j.source(f.GetSource()))
	}
	for _, o := range r.GetTo() {
		to = max(to, j.operation(o.GetOperation()))
	}
	if j.odd && !j.widen {
		return no
	}
	return min(t, from, to)
}

// values says whether one of want holds and none of not. match is not ok for a value that cannot be
// told.
func (j *ruleJudge) values(field string, want, not []string, match func(string) (truth, bool)) truth {
	t := min(j.oneOf(want, yes, match), j.oneOf(not, no, match).not())
	if t != yes && j.why == "" {
		j.why = field
	}
	return t
}

// oneOf says whether one of list holds; empty when the list is, or when one of it cannot be told.
func (j *ruleJudge) oneOf(list []string, empty truth, match func(string) (truth, bool)) truth {
	if len(list) == 0 {
		return empty
	}
	t := no
	for _, v := range list {
		one, ok := match(v)
		if !ok {
			j.odd = true
			return empty
		}
		t = max(t, one)
	}
	return t
}

// source says whether the conditions on the caller hold.
func (j *ruleJudge) source(s *security.Source) truth {
	fields := []struct {
		name      string
		want, not []string
		match     func(string) (truth, bool)
	}{
		{"principals", s.GetPrincipals(), nil, j.principal(j.widen)},
		{"notPrincipals", nil, s.GetNotPrincipals(), j.principal(!j.widen)},
		{"requestPrincipals", s.GetRequestPrincipals(), nil, j.ofRequests(j.requestPrincipal(j.widen))},
		{"notRequestPrincipals", nil, s.GetNotRequestPrincipals(), j.ofRequests(j.requestPrincipal(!j.widen))},
		{"namespaces", s.GetNamespaces(), nil, j.callerNamespace(j.widen)},
		{"notNamespaces", nil, s.GetNotNamespaces(), j.callerNamespace(!j.widen)},
		{"serviceAccounts", s.GetServiceAccounts(), nil, j.serviceAccount(j.widen)},
		{"notServiceAccounts", nil, s.GetNotServiceAccounts(), j.serviceAccount(!j.widen)},
		{"trustDomains", s.GetTrustDomains(), s.GetNotTrustDomains(), j.trustDomain},
		{"ipBlocks", s.GetIpBlocks(), s.GetNotIpBlocks(), subnetOf(j.call.Source)},
		{"remoteIpBlocks", s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), subnetOf(j.call.Remote)},
	}
	t, some := yes, false
	for _, f := range fields {
		some = some || len(f.want)+len(f.not) > 0
		t = min(t, j.values("from.source."+f.name, f.want, f.not, f.match))
	}
	j.odd = j.odd || !some
	return t
}

// operation says whether the conditions on what is called hold.
func (j *ruleJudge) operation(o *security.Operation) truth {
	host := func(wide bool) func(string) (truth, bool) {
		return j.ofRequests(func(v string) (truth, bool) {
			return known(j.call.Host, func(h string) bool { return matchHost(v, h, wide) }), starsAtEnds(v)
		})
	}
	path := func(as pathReading) func(string) (truth, bool) {
		return j.ofRequests(func(v string) (truth, bool) { return matchPath(v, j.call.Path, as) })
	}
	paths, notPaths := pathAsWritten, pathRefused
	if j.widen {
		paths, notPaths = pathRefused, pathExcepted
	}
	t := min(
		j.values("to.operation.hosts", o.GetHosts(), nil, host(j.widen)),
		j.values("to.operation.notHosts", nil, o.GetNotHosts(), host(!j.widen)),
		j.values("to.operation.methods", o.GetMethods(), o.GetNotMethods(), j.ofRequests(j.name(j.call.Method))),
		j.values("to.operation.paths", o.GetPaths(), nil, path(paths)),
		j.values("to.operation.notPaths", nil, o.GetNotPaths(), path(notPaths)),
		j.values("to.operation.ports", o.GetPorts(), o.GetNotPorts(),
			func(v string) (truth, bool) { return matchPort(v, j.call.Port) }),
	)
	if len(o.GetHosts())+len(o.GetNotHosts())+len(o.GetMethods())+len(o.GetNotMethods())+len(o.GetPaths())+len(o.GetNotPaths())+len(o.GetPorts())+len(o.GetNotPorts()) == 0 {
		j.odd = true
	}
	return t
}

// ofRequests is match for requests; connections have nothing of the sort.
func (j *ruleJudge) ofRequests(match func(string) (truth, bool)) func(string) (truth, bool) {
	if j.call.TCP {
		return func(string) (truth, bool) { return no, false }
	}
	return match
}

// name matches a text of the call, in which stars mean nothing but where they stand at an end of
// the value.
func (j *ruleJudge) name(text string) func(string) (truth, bool) {
	return func(v string) (truth, bool) {
		return known(text, func(s string) bool { return matchText(v, s) }), starsAtEnds(v)
	}
}

func subnetOf(a netip.Addr) func(string) (truth, bool) {
	return func(v string) (truth, bool) { return matchSubnet(v, a) }
}

// ofMesh says whether the caller is of the mesh: of its trust domain or one of the aliases. wide:
// or of any other.
func (j *ruleJudge) ofMesh(wide bool) bool {
	return j.call.From != (spiffe.ID{}) && (wide || slices.Contains(j.domains, j.call.From.TrustDomain))
}

// principal matches the caller's identity in any of the mesh's trust domains. Where the domain is
// left to a star it is one of these, or with wide any.
func (j *ruleJudge) principal(wide bool) func(string) (truth, bool) {
	return func(v string) (truth, bool) {
		v = strings.TrimPrefix(v, "spiffe://")
		if !starsAtEnds(v) {
			return no, false
		}
		if !j.ofMesh(wide || v[0] != '*') {
			return no, true
		}
		have := strings.TrimPrefix(j.call.From.String(), "spiffe://")
		domain, rest, ok := strings.Cut(v, "/")
		if !ok || domain != "cluster.local" && !slices.Contains(j.domains, domain) {
			return truthOf(matchText(v, have)), true
		}
		return truthOf(slices.ContainsFunc(j.domains, func(d string) bool { return matchText(d+"/"+rest, have) })), true
	}
}

func (j *ruleJudge) callerNamespace(wide bool) func(string) (truth, bool) {
	return func(v string) (truth, bool) {
		return truthOf(j.ofMesh(wide) && matchStars(v, j.call.From.Namespace)), v != ""
	}
}

func (j *ruleJudge) serviceAccount(wide bool) func(string) (truth, bool) {
	return func(v string) (truth, bool) {
		namespace, name, ok := strings.Cut(v, "/")
		if !ok {
			namespace, name = j.namespace, v
		}
		if namespace == "" || name == "" || strings.Contains(v, "*") || strings.Contains(name, "/") {
			return no, false
		}
		return truthOf(j.ofMesh(wide) && j.call.From.Namespace == namespace && j.call.From.ServiceAccount == name), true
	}
}

func (j *ruleJudge) trustDomain(v string) (truth, bool) {
	return truthOf(j.call.From != (spiffe.ID{}) && matchText(v, j.call.From.TrustDomain)), starsAtEnds(v) &&
		!strings.Contains(v, "/")
}

// requestPrincipal matches the issuer and the subject of the token, with a slash between them. wide
// takes any slash of the value for that one, otherwise it is the last.
func (j *ruleJudge) requestPrincipal(wide bool) func(string) (truth, bool) {
	return func(v string) (truth, bool) {
		match := func(iss, sub string) bool { return matchText(v, iss+"/"+sub) }
		ok := starsAtEnds(v) && (strings.Contains(v, "*") || len(v) > 2 && strings.Contains(v[1:len(v)-1], "/"))
		if i := strings.LastIndexByte(v, '/'); i >= 0 && !wide {
			match = func(iss, sub string) bool { return matchText(v[:i], iss) && matchText(v[i+1:], sub) }
			ok = starsAtEnds(v) && i > 0 && i < len(v)-1
		}
		iss, sub := j.call.Claims["iss"], j.call.Claims["sub"]
		if !ok || j.call.Claims == nil {
			return unsure, ok
		}
		return truthOf(len(iss) == 1 && len(sub) == 1 && iss[0] != "" && sub[0] != "" && match(iss[0], sub[0])), true
	}
}

// condition says whether a condition of when holds.
func (j *ruleJudge) condition(w *security.Condition) truth {
	match, except := j.attribute(w.GetKey(), j.widen), j.attribute(w.GetKey(), !j.widen)
	if match == nil || len(w.GetValues())+len(w.GetNotValues()) == 0 {
		j.odd = true
		return yes
	}
	return min(j.values("when "+w.GetKey(), w.GetValues(), nil, match),
		j.values("when "+w.GetKey(), nil, w.GetNotValues(), except))
}

// attribute matches values of an attribute; nil: there is no such attribute. wide takes more where
// a value has several readings.
func (j *ruleJudge) attribute(key string, wide bool) func(string) (truth, bool) {
	switch key {
	case "source.ip":
		return subnetOf(j.call.Source)
	case "remote.ip":
		return subnetOf(j.call.Remote)
	case "destination.ip":
		return subnetOf(j.call.Destination)
	case "source.namespace":
		return j.callerNamespace(wide)
	case "source.principal":
		return j.principal(wide)
	case "source.serviceaccount", "source.serviceAccount":
		return j.serviceAccount(wide)
	case "source.trustDomain":
		return j.trustDomain
	case "destination.port":
		return func(v string) (truth, bool) { return matchPort(v, j.call.Port) }
	case "connection.sni":
		return j.name(j.call.ServerName)
	case "request.auth.principal":
		return j.ofRequests(j.requestPrincipal(wide))
	case "request.auth.audiences":
		return j.ofRequests(j.claim("aud"))
	case "request.auth.presenter":
		return j.ofRequests(j.claim("azp"))
	}
	if name, ok := inBrackets(key, "request.headers"); ok && !strings.ContainsAny(name, "[]") {
		return j.ofRequests(j.header(strings.ToLower(name), wide))
	}
	if name, ok := inBrackets(key, "request.auth.claims"); ok {
		return j.ofRequests(j.claim(name))
	}
	if _, ok := strings.CutPrefix(key, "experimental.envoy.filters."); ok && strings.HasSuffix(key, "]") {
		return func(v string) (truth, bool) { return unsure, v != "" } // only the proxy knows
	}
	return nil
}

// inBrackets is what stands in the brackets of "before[x]", and whether key has that form.
func inBrackets(key, before string) (string, bool) {
	rest, ok := strings.CutPrefix(key, before)
	if !ok || len(rest) < 3 || rest[0] != '[' || rest[len(rest)-1] != ']' {
		return "", false
	}
	name := rest[1 : len(rest)-1]
	for n := range strings.SplitSeq(name, "][") {
		if n == "" || strings.ContainsAny(n, "[]") {
			return "", false
		}
	}
	return name, true
}

// header matches a header that may be there several times: wide wants one that matches, or an item
// between commas of one, otherwise all have to.
func (j *ruleJudge) header(name string, wide bool) func(string) (truth, bool) {
	return func(v string) (truth, bool) {
		if v == "" || j.call.Headers == nil {
			return unsure, v != ""
		}
		have := j.call.Headers[name]
		switch {
		case v == "*":
			return truthOf(len(have) > 0), true
		case wide:
			return truthOf(slices.ContainsFunc(have, func(h string) bool {
				return matchText(v, h) ||
					matchItem(v, h)
			})), true
		}
		return truthOf(len(have) > 0 && !slices.ContainsFunc(have,
			func(h string) bool { return !matchText(v, h) })), true
	}
}

func (j *ruleJudge) claim(name string) func(string) (truth, bool) {
	return func(v string) (truth, bool) {
		if v == "" || j.call.Claims == nil {
			return unsure, v != ""
		}
		return truthOf(slices.ContainsFunc(j.call.Claims[name],
			func(have string) bool { return matchText(v, have) })), true
	}
}

// The values of policies, as they are compared with what is known of a call. Source: istio.io,
// AuthorizationPolicy.

// matchText says whether s is what v says: "*" is anything but nothing, "*x" and "x*" are ends and
// beginnings.
func matchText(v, s string) bool {
	switch {
	case v == "*":
		return s != ""
	case strings.HasPrefix(v, "*"):
		return strings.HasSuffix(s, v[1:])
	case strings.HasSuffix(v, "*"):
		return strings.HasPrefix(s, v[:len(v)-1])
	default:
		return s == v
	}
}

// matchItem says whether one of the items of list, between commas, is what v says.
func matchItem(v, list string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if matchText(v, strings.Trim(item, " \t")) {
			return true
		}
	}
	return false
}

// starsAtEnds says that the stars of v stand where they mean something.
func starsAtEnds(v string) bool {
	stars := strings.Count(v, "*")
	return v != "" && (stars == 0 || stars == 1 && (v[0] == '*' || v[len(v)-1] == '*'))
}

// matchStars says whether s is v, in which each star stands for any text.
func matchStars(v, s string) bool {
	first, rest, ok := strings.Cut(v, "*")
	if !ok {
		return s == v
	}
	if !strings.HasPrefix(s, first) {
		return false
	}
	for i := len(first); i <= len(s); i++ {
		if matchStars(rest, s[i:]) {
			return true
		}
	}
	return false
}

// matchHost says whether a host is what v says, in any case. wide: one without a port stands for
// all ports.
func matchHost(v, host string, wide bool) bool {
	v, host = strings.ToLower(v), strings.ToLower(host)
	if matchText(v, host) || !wide || strings.HasSuffix(v, "*") || namesPort(v) {
		return matchText(v, host)
	}
	// every way of taking a port off, for an address in brackets has colons of its own
	for i := range len(host) {
		if host[i] == ':' && matchText(v, host[:i]) {
			return true
		}
	}
	return false
}

// namesPort says that a host ends with a port.
func namesPort(host string) bool {
	_, port, ok := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":")
	return ok && port != ""
}

// matchSubnet says whether an address is the one of v, or in its block; not ok when v is neither.
func matchSubnet(v string, a netip.Addr) (t truth, ok bool) {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		one, err := netip.ParseAddr(v)
		if err != nil || one.Zone() != "" {
			return no, false
		}
		p = netip.PrefixFrom(one, one.BitLen())
	}
	if p.Addr().Is4In6() {
		return no, false
	}
	if !a.IsValid() {
		return unsure, true
	}
	return truthOf(p.Contains(a)), true
}

// matchPort says whether a port is that of v; not ok when v is none.
func matchPort(v string, port uint32) (t truth, ok bool) {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil || n == 0 {
		return no, false
	}
	if port == 0 {
		return unsure, true
	}
	return truthOf(uint32(n) == port), true
}

// validHosts are the Host headers that proxies accept.
const validHosts = `^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])(:[0-9]*)?$`

// trustDomains are the mesh's trust domain and its aliases.
func trustDomains(m *push.Mesh) []string {
	return append([]string{cmp.Or(m.Config.GetTrustDomain(), "cluster.local")}, m.Config.GetTrustDomainAliases()...)
}
