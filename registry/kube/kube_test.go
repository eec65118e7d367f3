package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

func pod(name, label string) *corev1.Pod {
	labels := map[string]string{"app": label}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: labels}}
}

func describe(p *corev1.Pod) string { return p.Name + "=" + p.Labels["app"] }

func clusterOf(client *fake.Clientset) *Cluster {
	return &Cluster{Name: "kubernetes:east", Options: DefaultOptions(), Log: hclog.NewNullLogger(), Client: client}
}

// receive returns the next value, and fails the test if there is none for a while.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing arrived")
		panic("unreachable")
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(pod("a", "1"))
	forbid := make(chan bool, 1)
	forbid <- true
	client.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		select {
		case <-forbid:
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role"))
		default:
			return false, nil, nil
		}
	})
	c := clusterOf(client)
	events, reports := make(chan string, 100), make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watch(ctx, c, Resource[*corev1.PodList]{Name: "pods", Client: client.CoreV1().Pods("")}, Handler[*corev1.Pod, string]{
			Convert: describe,
			Replace: func(all []string, _ bool) {
				for _, p := range all {
					events <- "listed " + p
				}
			},
			Set:    func(p string) { events <- "set " + p },
			Delete: func(p string) { events <- "deleted " + p },
			Report: func(err error) { reports <- err },
		})
	}()
	want := func(event string) {
		t.Helper()
		if got := receive(t, events); got != event {
			t.Errorf("event %q, want %q", got, event)
		}
	}
	err := receive(t, reports)
	right := "does not allow ashored to list and watch pods: give its account a role with that right and a binding"
	if err == nil || !strings.Contains(err.Error(), right) {
		t.Errorf("report %v does not name the right", err)
	}
	want("listed a=1")
	if err := receive(t, reports); err != nil {
		t.Errorf("report %v after a list that succeeded", err)
	}
	receive(t, reports) // of the watch, which exists now
	pods := client.CoreV1().Pods("shop")
	if _, err := pods.Create(ctx, pod("b", "1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want("set b=1")
	if _, err := pods.Update(ctx, pod("a", "2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want("set a=2")
	if err := pods.Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want("deleted b=1")
	cancel()
	receive(t, ended)
}

// An API server that cannot stream lists is asked for pages, of the newest version. Objects are
// converted when they are read.
func TestPages(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
		o := a.(kubetesting.ListActionImpl).ListOptions
		if o.Limit == 1 { // the watch compares versions
			return true, &corev1.PodList{}, nil
		}
		if o.Limit != pageSize || o.ResourceVersion != "" {
			t.Errorf("a list has limit %d and version %q, want %d and none", o.Limit, o.ResourceVersion, pageSize)
		}
		if o.Continue == "" {
			return true, &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "b"}, Items: []corev1.Pod{*pod("a", "1")}}, nil
		}
		return true, &corev1.PodList{Items: []corev1.Pod{*pod(o.Continue, "2")}}, nil
	})
	lists, ended := make(chan string, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		Watch(ctx, clusterOf(client), Resource[*corev1.PodList]{Name: "pods", Client: client.CoreV1().Pods("")},
			Handler[*corev1.Pod, string]{
				Convert: describe,
				Replace: func(all []string, _ bool) { lists <- strings.Join(all, " ") },
				Report: func(err error) {
					if err != nil {
						t.Error(err)
					}
				},
			})
	}()
	if got := receive(t, lists); got != "a=1 b=2" {
		t.Errorf("listed %q, want two Pods", got)
	}
	cancel()
	receive(t, ended)
}

// A list of an older version than before says that the API server lost data.
func TestReplaceLost(t *testing.T) {
	t.Parallel()
	var got []bool
	s := &store[*corev1.Pod, string]{h: Handler[*corev1.Pod, string]{
		Replace: func(_ []string, lost bool) { got = append(got, lost) }, Report: func(error) {}}}
	for _, version := range []string{"9", "10", "10", "2", "3"} {
		if err := s.Replace(nil, version); err != nil {
			t.Fatal(err)
		}
	}
	if want := []bool{false, false, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("lost is %v, want %v", got, want)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An API server that accepts connections and never answers is reported, although a watch that timed
// out is no error for client-go.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	c, err := Connect("kubernetes:east", DefaultOptions(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	c.transport.server = &url.URL{Scheme: "https", Host: "127.0.0.1", Path: "/"}
	c.transport.next = roundTripper(func(*http.Request) (*http.Response, error) { return nil, os.ErrDeadlineExceeded })
	ctx, cancel := context.WithCancel(t.Context())
	reports, ended := make(chan error, 100), make(chan struct{})
	go func() {
		defer close(ended)
		Watch(ctx, c, Resource[*corev1.PodList]{Name: "pods", Client: c.Client.CoreV1().Pods("")},
			Handler[*corev1.Pod, string]{Report: func(err error) { reports <- err }})
	}()
	if err := receive(t, reports); err == nil || err.Error() != "cluster kubernetes:east cannot be reached: i/o timeout" {
		t.Errorf("report %v, want that the cluster cannot be reached", err)
	}
	cancel()
	receive(t, ended)
}

// One replica leads at a time, and the next one takes over when it stops.
func TestLead(t *testing.T) {
	t.Parallel()
	c := clusterOf(fake.NewClientset())
	events := make(chan string, 100)
	start := func(replica string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Lead(ctx, replica, func(err error) {
				if err != nil {
					t.Errorf("replica %s: %v", replica, err)
				}
			}, func(ctx context.Context) {
				events <- replica + " leads"
				<-ctx.Done()
				events <- replica + " stops"
			})
		}()
		return func() { cancel(); receive(t, ended) }
	}
	want := func(event string) {
		t.Helper()
		if got := receive(t, events); got != event {
			t.Errorf("event %q, want %q", got, event)
		}
	}
	stopA := start("a")
	want("a leads")
	stopB := start("b")
	stopA()
	want("a stops")
	want("b leads")
	stopB()
	want("b stops")
}

// A replica that may not write the Lease reports the right that it needs.
func TestLeadForbidden(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, lease, errors.New("no role"))
	})
	ctx, cancel := context.WithCancel(t.Context())
	reports, ended := make(chan error, 100), make(chan struct{})
	go func() {
		defer close(ended)
		clusterOf(client).Lead(ctx, "a", func(err error) { reports <- err }, func(context.Context) { t.Error("it leads") })
	}()
	err := receive(t, reports)
	if err == nil || !strings.Contains(err.Error(), "does not allow ashored to create leases in istio-system") {
		t.Errorf("report %v does not name the right", err)
	}
	cancel()
	receive(t, ended)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte("kind: Config\napiVersion: v1\nclusters: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"not in a Pod":    {Options{}, "kubeconfig: not set, and ashored does not run in a Pod"},
		"no file":         {Options{Kubeconfig: "/no/such/file"}, "kubeconfig: /no/such/file: stat /no/such/file"},
		"no such context": {Options{Kubeconfig: file, Context: "west"}, `context "west" does not exist`},
		"an empty config": {Options{Kubeconfig: file}, "kubeconfig: " + file + ": it names no API server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Connect("kubernetes", tc.options, hclog.NewNullLogger())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// Requests fail with the reason while the kubeconfig or a file that it names is missing, and succeed
// once they exist. The address of the API server may have a path.
func TestLateKubeconfig(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/", "/clusters/a%2Fb"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			lateKubeconfig(t, path)
		})
	}
}

func lateKubeconfig(t *testing.T, path string) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.RequestURI, strings.TrimSuffix(path, "/")+"/api/v1/namespaces/shop/pods?limit=7"; got != want {
			t.Errorf("the API server is asked for %s, want %s", got, want)
		}
		if got := r.Header.Get("Authorization") + " " + r.UserAgent(); !strings.HasPrefix(got, "Bearer secret ashored/") {
			t.Errorf("token and user agent are %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	o := Options{Kubeconfig: filepath.Join(dir, "kubeconfig")}
	c, err := Connect("kubernetes:east", o, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	list := func() (*corev1.PodList, error) {
		pods, err := c.Client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{Limit: 7})
		return pods, c.Explain(err, "list", "pods")
	}
	for _, step := range []struct{ file, text string }{
		{"kubeconfig", "{apiVersion: v1, kind: Config, current-context: c, " +
			"contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {tokenFile: token}}], " +
			"clusters: [{name: c, cluster: {certificate-authority: ca.pem, server: '" + server.URL + path + "'}}]}"},
		{"ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))},
		{"token", "secret"},
	} {
		file := filepath.Join(dir, step.file)
		_, err := list()
		if err == nil || !strings.HasPrefix(err.Error(), "cluster kubernetes:east cannot be reached: kubeconfig: ") ||
			!strings.Contains(err.Error(), file+": no such file") {
			t.Errorf("error %v, want one that names %s", err, file)
		}
		if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pods, err := list(); err != nil || len(pods.Items) != 1 {
		t.Errorf("Pods %v, error %v, want one Pod", pods, err)
	}
	utilnet.CloseIdleConnectionsFor(c.transport)
}
