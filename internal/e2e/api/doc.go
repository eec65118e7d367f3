// Package api tests Istio's documented tasks of traffic management and security: each is a file of
// testdata with the configuration of its steps, and with requests through real Envoys after each.
// All share one mesh. tasks_test.go lists the tasks, and where each is tested.
package api
