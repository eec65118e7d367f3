package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

func (*fake) CreateToken(_ context.Context, r admin.TokenRequest) (admin.Token, error) {
	if r.Group == "none/none" {
		return admin.Token{}, admin.NewError(admin.ErrNotFound, "there is no WorkloadGroup none/none")
	}
	ttl, err := time.ParseDuration(r.TTL)
	return admin.Token{ID: "abc", Group: r.Group, Identity: "spiffe://cluster.local/ns/shop/sa/web",
		Expires: time.Now().Add(ttl + time.Second),
		Join:    []string{"ashore-agent", "join", "--control-plane", "a:15012,[fd00::2]:15012"},
		Token:   "ashore-join.abc.secret", Notes: []string{"Mind the address."}}, err
}

func (*fake) ListTokens(context.Context, admin.None) ([]admin.TokenStatus, error) {
	now := time.Now()
	return []admin.TokenStatus{
		{ID: "abc", Group: "shop/web", Created: now.Add(-time.Minute), By: "user root (uid 0)", Expires: now.Add(59*time.Minute + time.Second), State: "unused"},
		{ID: "def", Group: "shop/web", Created: now.Add(-time.Hour), Expires: now, State: "used", UsedBy: "shop/web-1", UsedAt: now.Add(-time.Minute)},
	}, nil
}

func (*fake) RevokeToken(_ context.Context, q admin.TokenID) (admin.None, error) {
	if q.ID != "abc" && q.ID != "def" {
		return admin.None{}, admin.NewError(admin.ErrNotFound, "no token %s", q.ID)
	}
	return admin.None{}, nil
}

func (*fake) ShowAuthority(context.Context, admin.None) (admin.Authority, error) {
	now := time.Now()
	end := now.Add(100*24*time.Hour + time.Minute)
	a := admin.Authority{Kind: "self-signed", Folder: "/var/lib/ashore/ca", TrustDomain: "cluster.local",
		Problems: []string{"odd"}, PEM: "-----BEGIN CERTIFICATE-----\n",
		Roots: []admin.Certificate{{Root: "sha256:01", State: "signs", NotAfter: end, Subject: "a"},
			{Root: "sha256:02", State: "trusted", NotAfter: now.Add(-time.Hour)}},
		Signer: admin.Certificate{Root: "sha256:01", Serial: "0a", NotAfter: end, Renew: end},
		Server: admin.Certificate{Root: "sha256:01", Subject: "spiffe://cluster.local/ashore/control-plane",
			NotAfter: end},
		Replicas: []admin.Replica{
			{Name: "two (10.0.0.2:15012)", Address: "10.0.0.2:15012"},
		},
		Rotation: admin.Rotation{Since: now.Add(-time.Minute), Count: 12}}
	for i := range 10 {
		a.Rotation.Waiting = append(a.Rotation.Waiting, admin.Waiting{Kind: "workload", Name: fmt.Sprintf("p%02d", i),
			Reason: "its certificate is from the old root"})
	}
	return a, nil
}

func (f *fake) CreateReplicaToken(_ context.Context, r admin.ReplicaTokenRequest) (admin.ReplicaToken,
	error) {
	return admin.ReplicaToken{Token: "ashore-replica.abc." + r.TTL, Expires: time.Now().Add(time.Hour)}, nil
}

func (f *fake) RotateAuthority(ctx context.Context, r admin.RotateRequest) (admin.Authority, error) {
	a, err := f.ShowAuthority(ctx, admin.None{})
	a.Problems = []string{fmt.Sprintf("force %t %s", r.Force, r.Reason)}
	return a, err
}

func (*fake) ListWorkloads(context.Context, admin.None) (admin.WorkloadList, error) {
	now := time.Now()
	return admin.WorkloadList{
		Workloads: []admin.Workload{
			{Name: "shop/api-1", Identity: "spiffe://cluster.local/ns/shop/sa/api", Joined: now.Add(-time.Hour), Revoked: true},
			{Name: "shop/web-1", Identity: "spiffe://cluster.local/ns/shop/sa/web", Group: "shop/web", Joined: now.Add(-time.Hour),
				Leaves: []admin.Leaf{{Serial: "0a", NotAfter: now},
					{Serial: "0b", NotAfter: now.Add(23*time.Hour + time.Minute)}}, Proxies: []string{"web-1.shop"},
				Health: &admin.Health{Reason: "connection \x1b refused", At: now.Add(-2 * time.Minute)}},
		},
		Revocations: []admin.Revocation{{Name: "shop/api-1", Reason: "stolen",
			By: "user root (uid 0)", At: now.Add(-time.Minute)}},
	}, nil
}

func (*fake) Revoke(_ context.Context, r admin.RevokeRequest) (admin.Revoked, error) {
	if strings.HasPrefix(r.Name, "spiffe://") {
		return admin.Revoked{Name: r.Name, Workloads: []string{"shop/web-1", "shop/web-2"}}, nil
	}
	return admin.Revoked{Name: r.Name, Workloads: []string{r.Name}, Proxies: 2,
		Notes: []string{"2 proxies are connected and hear of it"}}, nil
}

func (f *fake) Restore(ctx context.Context, r admin.RevokeRequest) (admin.Revoked, error) {
	return f.Revoke(ctx, r)
}

func (*fake) Explain(_ context.Context, r admin.ExplainRequest) (admin.Explanation, error) {
	part := admin.ExplainPart{At: []string{"shop/db-1:" + strings.TrimPrefix(r.To, "db.service.consul:")}, Verdict: "denied"}
	switch {
	case len(r.Addresses) > 0:
		if part.Verdict, part.Reason = "allowed", "no policy denies it"; r.Addresses[0] == "10.0.0.1:80" {
			part.Verdict, part.Reason = "denied", "v1 is denied"
		}
		return admin.Explanation{Verdict: part.Verdict, Parts: []admin.ExplainPart{part}}, nil
	case r.To == "db.service.consul:80" && r.From == "spiffe://td/ns/shop/sa/web" && r.Method == "POST" && r.Path == "/items":
		part.Reason = "rule 0 denies it"
		return admin.Explanation{Verdict: "denied", Parts: []admin.ExplainPart{part}}, nil
	case r.To == "db.service.consul:81" && r.From == "anonymous":
		part.Reason, part.Closed = "shop/strict is STRICT", true
		return admin.Explanation{Verdict: "denied", Parts: []admin.ExplainPart{part}}, nil
	case r.To == "db.service.consul:83":
		part.Reason = "a policy denies it"
		return admin.Explanation{Verdict: "denied", Parts: []admin.ExplainPart{part}}, nil
	case r.To == "db.service.consul:82":
		return admin.Explanation{}, admin.NewError(admin.ErrNotFound, "nothing is known of %q", r.To)
	}
	return admin.Explanation{From: r.From, Verdict: "denied", Notes: []string{"Mutual TLS is STRICT."},
		Parts: []admin.ExplainPart{{At: []string{r.To}, Call: "GET /x", Verdict: "denied",
			Reason: strings.TrimSpace(fmt.Sprintf("port %d %s %s %s", r.Port, r.Method, r.Path, r.Host)), Steps: []admin.ExplainStep{{Policy: "AuthorizationPolicy shop/no", Action: "DENY", Matched: true, Rule: 0,
				Decides: true, Why: "path /x", Origin: "a.yaml:3"}, {Policy: "AuthorizationPolicy shop/all", Action: "ALLOW", Rule: -1}}}}}, nil
}

func (*fake) Tail(_ context.Context, q admin.AuditQuery) ([]audit.Event, error) {
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	return []audit.Event{
		{Time: at, Action: audit.TokenCreate, Actor: "user root (uid 0)", Target: "abc", Outcome: audit.OK, Details: map[string]string{"group": "shop/web"}},
		{Time: at, Action: audit.TokenRefuse, Actor: "10.0.0.9", Target: "abc\x1b[2J", Outcome: audit.Refused, Reason: "another key"},
	}[2-min(q.Lines, 2):], nil
}

func TestIdentityCommands(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC).Local().Format(time.DateTime)
	waiting := ""
	for i := range 10 {
		waiting += fmt.Sprintf("workload  p%02d   -              its certificate is from the old root\n", i)
	}
	for _, tc := range []struct{ args, out, errOut string }{
		{"join-token create --group shop/web --ttl 30m", `# With dnf: dnf install -y ./ashore-agent-*.rpm ./ashore-envoy-*.rpm
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt install -y ./ashore-agent_*.deb ./ashore-envoy_*.deb &&
$sudo ashore-agent join --control-plane 'a:15012,[fd00::2]:15012' <<'EOF'
ashore-join.abc.secret
EOF
`,
			"Run these commands on the machine, in the folder with the packages; the token expires in 30m. The machine gets the identity spiffe://cluster.local/ns/shop/sa/web (group shop/web).\nMind the address.\n"},
		{"join-token list", `ID   GROUP     AGE  CREATED BY         EXPIRES  STATE
abc  shop/web  1m   user root (uid 0)  in 59m   unused
def  shop/web  1h   -                  -        used by shop/web-1 1m ago
`, ""},
		{"join-token revoke ashore-join.abc.secret", "token abc is revoked. A workload that joined with it stays\n", ""},
		{"ca show --pem", "-----BEGIN CERTIFICATE-----\n", ""},
		{"ca show", `self-signed (/var/lib/ashore/ca), trust domain cluster.local

WHAT    STATE    EXPIRES  RENEWED  SUBJECT                                      ROOT
root    signs    in 100d  -        a                                            sha256:01
root    trusted  1h ago   -        -                                            sha256:02
signer  -        in 100d  in 100d  -                                            sha256:01
server  -        in 100d  -        spiffe://cluster.local/ashore/control-plane  sha256:01

REPLICA               ADDRESS
two (10.0.0.2:15012)  10.0.0.2:15012

PROBLEM odd

Rotation: it began 1m ago. The new root signs, and both are trusted
The old root is still needed by 12:
WHAT      NAME  AT THE LATEST  WHY
` + waiting + "and 2 more\n", ""},
		{"workload list", `NAME        IDENTITY                               GROUP     JOINED  CERTIFICATE     SERIAL  PROXIES
shop/api-1  spiffe://cluster.local/ns/shop/sa/api  -         1h      revoked         -       -
shop/web-1  spiffe://cluster.local/ns/shop/sa/web  shop/web  1h      expires in 23h  0b      web-1.shop

UNHEALTHY   SINCE  WHY
shop/web-1  2m     connection ? refused

REVOKED     SINCE  BY                 REASON
shop/api-1  1m     user root (uid 0)  stolen
`, ""},
		{"workload revoke shop/web-1 --reason x", "shop/web-1 is revoked\n2 proxies are connected and hear of it\n", ""},
		{"workload restore shop/web-1 -o json", "{\n  \"name\": \"shop/web-1\",\n  \"workloads\": [\n    \"shop/web-1\"\n  ],\n  \"proxies\": 2,\n  \"notes\": [\n    \"2 proxies are connected and hear of it\"\n  ]\n}\n", ""},
		{"workload revoke spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/web is revoked\nworkloads: shop/web-1, shop/web-2\n", ""},
		{"audit tail", at + "  token.create         abc by user root (uid 0) group=shop/web\n" + at + "  token.refuse         REFUSED abc?[2J by 10.0.0.9: another key\n", ""},
		{"authz explain shop/web shop/api --port 80 --method GET --path /x", `DENIED: shop/web to shop/api

shop/api, GET /x: DENIED
port 80 GET /x

   ACTION  POLICY                        MATCHES  WHY      READ FROM
>  DENY    AuthorizationPolicy shop/no   rule 0   path /x  a.yaml:3
   ALLOW   AuthorizationPolicy shop/all  no       -        -

Mutual TLS is STRICT.
`, ""},
		{"authz explain shop/web shop/api --host web.example:8080", `DENIED: shop/web to shop/api

shop/api, GET /x: DENIED
port 0   web.example:8080

   ACTION  POLICY                        MATCHES  WHY      READ FROM
>  DENY    AuthorizationPolicy shop/no   rule 0   path /x  a.yaml:3
   ALLOW   AuthorizationPolicy shop/all  no       -        -

Mutual TLS is STRICT.
`, ""},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := result(t, append(strings.Fields(tc.args), "--socket", socket)...)
			if d := cmp.Diff(tc.out, out); d != "" || code != 0 {
				t.Errorf("exit code %d, output (-want +got):\n%s", code, d)
			}
			if d := cmp.Diff(tc.errOut, errOut); d != "" {
				t.Errorf("standard error (-want +got):\n%s", d)
			}
		})
	}
	for args, want := range map[string]string{
		"ca rotate --force --reason stolen":     "force true stolen",
		"join-token list -o yaml":               "usedBy: shop/web-1",
		"workload list -o json":                 `"serial": "0b"`,
		"audit tail -n 1 -o json":               `"target": "abc\u001b[2J",`,
		"ca show -o json":                       `"p09"`,
		"ca replica-token --ttl 15m":            "ashore-replica.abc.15m",
		"join-token create --group a/b -o json": `"token": "ashore-join.abc.secret"`,
		"__complete authz explain a ":           "web-1.shop",
	} {
		line := append([]string{"--socket", socket}, strings.Split(args, " ")...)
		if strings.HasPrefix(args, "__complete") {
			line = append([]string{"__complete", "--socket", socket}, line[3:]...)
		}
		if _, out, errOut := result(t, line...); !strings.Contains(out, want) {
			t.Errorf("%s: %q, want %q in it; standard error %q", args, out, want, errOut)
		}
	}
}

// The certificate that a workload has now is what its row is about: ended, revoked or valid.
func TestCertificateState(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old, late := admin.Leaf{Serial: "0a", NotAfter: now.Add(time.Hour)}, now.Add(3*time.Hour+time.Minute)
	for want, w := range map[string]admin.Workload{
		"expires in 3h": {Leaves: []admin.Leaf{old, {Serial: "0b", NotAfter: late}}},
		"revoked":       {Leaves: []admin.Leaf{old, {Serial: "0b", NotAfter: late}}, Revoked: true},
		"expired":       {},
	} {
		if got, _ := certificateState(w); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
