package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/hashicorp/go-hclog"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
}

// Connect reads the kubeconfig, or the service account of this Pod. It sends no request. Errors name
// the option that is wrong.
func Connect(name string, o Options, log hclog.Logger) (*Cluster, error) {
	silence()
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "ashored/" + build.Read().Version
	config.QPS = -1 // parts that write limit themselves
	c := &Cluster{Name: name, Options: o, Log: log}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	compact := rest.CopyConfig(config)
	compact.ContentType = "application/vnd.kubernetes.protobuf"
	compact.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.Client, err = kubernetes.NewForConfig(compact); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return c, nil
}

// restConfig returns how to reach the API server.
func restConfig(o Options) (*rest.Config, error) {
	if o.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("kubeconfig: not set, and ashored does not run in a Pod: name a kubeconfig file")
		}
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: not set, and the service account of this Pod cannot be read: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %s: %w", o.Kubeconfig, err)
	}
	return config, nil
}

// silence discards what client-go logs: its errors reach us as values, and are logged once.
var silence = sync.OnceFunc(func() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
})
