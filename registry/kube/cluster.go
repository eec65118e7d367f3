package kube

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/hashicorp/go-hclog"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/ashore-mesh/ashore/internal/build"
)

// Cluster is one cluster of Kubernetes. Safe for concurrent use.
type Cluster struct {
	// Name is the name of the source, for operators.
	Name string
	// Options are its options. Options.Cluster is set.
	Options Options
	// Log is the logger.
	Log hclog.Logger
	// Client reads and writes the objects of Kubernetes. Dynamic does those of others.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	transport *transport
}

// Connect returns a cluster. It reads no file and sends no request. Requests read the kubeconfig, or
// the service account of this Pod, and fail while it cannot be used; see Check.
func Connect(name string, o Options, log hclog.Logger) (*Cluster, error) {
	silence()
	c := &Cluster{Name: name, Options: o, Log: log, transport: &transport{options: o}}
	config := &rest.Config{
		Host:      "http://cluster", // transport replaces it
		Transport: c.transport,
		UserAgent: "ashored/" + build.Read().Version,
		QPS:       -1, // parts that write limit themselves
	}
	var err error
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	compact := rest.CopyConfig(config)
	compact.ContentType = "application/vnd.kubernetes.protobuf"
	compact.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.Client, err = kubernetes.NewForConfig(compact); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return c, nil
}

// Check returns why the kubeconfig, or a file that it names, cannot be used now. It sends no request.
// Errors name the option that is wrong.
func (c *Cluster) Check() error {
	_, _, err := c.transport.load()
	return err
}

// silence discards what client-go logs: its errors reach us as values, and are logged once.
var silence = sync.OnceFunc(func() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
})
