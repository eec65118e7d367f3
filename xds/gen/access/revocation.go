package access

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	exprv1alpha1 "google.golang.org/genproto/googleapis/api/expr/v1alpha1"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Names of the rules of revocation, in statistics and access logs.
const (
	revokedIdentity    = "revoked-identity"
	revokedCertificate = "revoked-certificate"
)

// revocations refuse callers that nobody trusts any more; nil: there are none.
func (in extensionsIn) revocations() *rbacv3.RBAC {
	if in.identities.Len()+in.certificates.Len() == 0 {
		return nil
	}
	r := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	if in.identities.Len() > 0 {
		p := &rbacv3.Policy{Permissions: []*rbacv3.Permission{anyPermission()}}
		for _, id := range in.identities.Items() {
			p.Principals = append(p.Principals,
				authenticated(envoy.Exact(id)))
		}
		r.Policies[revokedIdentity] = p
	}
	if in.certificates.Len() > 0 {
		r.Policies[revokedCertificate] = &rbacv3.Policy{
			Permissions: []*rbacv3.Permission{anyPermission()},
			Principals:  []*rbacv3.Principal{anyPrincipal()},
			Condition:   certificateIn(in.certificates.Items()),
		}
	}
	return r
}

// certificateIn is the condition that the caller showed one of these certificates, by the SHA-256
// of their DER in lower-case hexadecimal. Without a certificate it is false. Source: Envoy,
// attribute connection.sha256_peer_certificate_digest. Tried on 1.40 in filters of requests and of
// connections.
func certificateIn(digests []string) *exprv1alpha1.Expr {
	id := int64(0)
	next := func() int64 { id++; return id }
	list := &exprv1alpha1.Expr_CreateList{}
	for _, d := range digests {
		list.Elements = append(list.Elements, &exprv1alpha1.Expr{Id: next(), ExprKind: &exprv1alpha1.Expr_ConstExpr{
			ConstExpr: &exprv1alpha1.Constant{ConstantKind: &exprv1alpha1.Constant_StringValue{StringValue: d}},
		}})
	}
	connection := &exprv1alpha1.Expr{Id: next(),
		ExprKind: &exprv1alpha1.Expr_IdentExpr{IdentExpr: &exprv1alpha1.Expr_Ident{Name: "connection"}}}
	digest := &exprv1alpha1.Expr{Id: next(), ExprKind: &exprv1alpha1.Expr_SelectExpr{
		SelectExpr: &exprv1alpha1.Expr_Select{Operand: connection, Field: "sha256_peer_certificate_digest"},
	}}
	return &exprv1alpha1.Expr{Id: next(), ExprKind: &exprv1alpha1.Expr_CallExpr{CallExpr: &exprv1alpha1.Expr_Call{
		Function: "@in",
		Args:     []*exprv1alpha1.Expr{digest, {Id: next(), ExprKind: &exprv1alpha1.Expr_ListExpr{ListExpr: list}}},
	}}}
}
