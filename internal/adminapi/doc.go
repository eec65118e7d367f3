// Package adminapi answers the admin socket from the parts of ashored.
//
// Backend, Catalog, Explainer, Store, Authority and Maintenance implement the interfaces of package
// admin. Published holds the context that proxies are served from; all answers about configuration
// come from it. ConfigAudit records in the audit log which objects became active.
package adminapi
