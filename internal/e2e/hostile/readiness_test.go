package hostile

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Readers of the agent's metrics who never take what they asked for do not keep a probe from its
// answer.
func TestSlowReadersOfMetricsAndProbes(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	p := m.Proxy(harness.Workload{Name: "web"})
	status := p.IP + ":15020"
	harness.Eventually(t, "the agent has seen that Envoy is ready", func() error {
		return probeStatus("http://"+status+"/healthz/ready", http.StatusOK)
	})

	var readers sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); readers.Wait() })
	for range 16 {
		readers.Go(func() { readNothing(status, stop) })
	}
	harness.Eventually(t, "the metrics have as many readers as they may", func() error {
		return probeStatus("http://"+status+"/metrics", http.StatusTooManyRequests)
	})
	for range 50 {
		for _, at := range []string{status, p.IP + ":15021"} {
			err := probeStatus("http://"+at+"/healthz/ready", http.StatusOK)
			if err != nil { // once may be a busy machine
				err = probeStatus("http://"+at+"/healthz/ready", http.StatusOK)
			}
			if err != nil {
				t.Fatalf("two probes in a row while others read metrics: %v", err)
			}
		}
	}
}

// readNothing asks for metrics again and again and takes no answer, on one connection after the
// other, until stop is closed.
func readNothing(address string, stop <-chan struct{}) {
	requests := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: agent\r\n\r\n", 1000)
	for {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return // the agent has ended
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.WriteString(c, requests) // fails once the agent hangs up
		}()
		select {
		case <-stop:
		case <-time.After(5 * time.Second): // the agent has hung up, or is about to
		}
		_ = c.Close() // ends the writer
		<-ended
		select {
		case <-stop:
			return
		default:
		}
	}
}

// probeStatus asks once, on a connection of its own, and wants that answer.
func probeStatus(url string, want int) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		return fmt.Errorf("%s answers %s, want %d", url, resp.Status, want)
	}
	return nil
}
