// Package webhook says over HTTPS what is wrong with configuration, before it is written anywhere.
//
// Two paths lead to the one gate, package config. POST /validate takes Kubernetes' AdmissionReview,
// so that an API server refuses what Ashore would; POST /v1/validate takes a file as text, for
// pipelines, and answers as "ashorectl validate" does. Both are functions of what they are sent:
// nothing of the mesh is read, told or changed, so nobody has to prove who he is.
//
// Because anybody may ask, everything is bounded: connections and the rate of requests by address,
// requests at once, the size of a body, bytes that are parsed at once, and the time for each step.
package webhook
