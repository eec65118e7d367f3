// Package webhook validates configuration over HTTPS before it is written anywhere.
//
// POST /validate takes Kubernetes' AdmissionReview, so that an API server refuses what Ashore would
// refuse. POST /v1/validate takes a file as text, for pipelines, and answers as "ashorectl validate"
// does. Both use package config. An answer depends only on the request: the package reads and
// changes nothing of the mesh. So clients need not authenticate.
//
// Therefore everything is limited: connections and requests by address, concurrent requests, the
// size of a body, the bytes that are parsed at once, and the time of each step.
package webhook
