// Package adminapi answers the admin socket from the parts of ashored.
//
// API has what the answers are made of, and its Routes are all calls with their roles. Published
// holds the context that proxies are served from; all answers about configuration come from it.
// ConfigAudit records in the audit log which objects became active.
package adminapi
