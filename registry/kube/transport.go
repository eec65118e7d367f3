package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// transport sends requests to the API server that the options name. It reads the kubeconfig before the
// first request. While the kubeconfig or a file that it names cannot be used, requests fail with the
// reason, and the next one reads it again. Safe for concurrent use.
type transport struct {
	options Options // immutable

	mu     sync.Mutex
	server *url.URL          // guarded by mu
	next   http.RoundTripper // guarded by mu; nil: the kubeconfig was not read yet
}

var _ utilnet.RoundTripperWrapper = (*transport)(nil)

// load reads the kubeconfig unless that was done. It returns where to send requests, and with what.
func (t *transport) load() (*url.URL, http.RoundTripper, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		return t.server, t.next, nil
	}
	config, err := restConfig(t.options)
	if err != nil {
		return nil, nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	next, err := rest.TransportFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	server.Path = cmp.Or(server.Path, "/") // else JoinPath makes relative paths
	t.server, t.next = server, next
	return server, next, nil
}

// RoundTrip implements http.RoundTripper. Of the URL of a request it uses the path and the query.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	server, next, err := t.load()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	sent := r.Clone(r.Context())
	sent.Host, sent.URL = "", server.JoinPath(r.URL.EscapedPath())
	sent.URL.RawQuery = r.URL.RawQuery
	return next.RoundTrip(sent)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, which closes idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
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
	// DeferredLoadingClientConfig would take the service account of this Pod in place of an empty file,
	// and so another cluster.
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig}
	file, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %s: %w", o.Kubeconfig, err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, "",
		&clientcmd.ConfigOverrides{CurrentContext: o.Context}, rules).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err): // its text is for kubectl
		return nil, fmt.Errorf("kubeconfig: %s: it names no API server: set current-context, or the option context",
			o.Kubeconfig)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %s: %w", o.Kubeconfig, err)
	}
	return config, nil
}
