// Package hostile attacks a running mesh as a workload with a valid certificate and bad intentions
// would: one attack of each kind, each with the limit or the refusal that answers it.
package hostile
