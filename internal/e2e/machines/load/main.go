// Command load asks for a URL at a steady rate until its standard input ends, and then prints how
// many requests were sent and which failed. Every tenth request has a connection of its own.
//
// On a busy machine the rate drops: a fixed rate would queue more and more requests in the proxies,
// until some of them last longer than a restart of Envoy waits for.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// result is what is printed, as JSON.
type result struct {
	Sent   int
	Failed int
	Errors []string // the first and the latest failures
}

// maxPending bounds the requests that wait for their response.
const maxPending = 50

func main() {
	rate := flag.Int("rate", 300, "requests a second")
	flag.Parse()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
		stop()
	}()
	if err := json.NewEncoder(os.Stdout).Encode(load(ctx, flag.Arg(0), *rate)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(ctx context.Context, url string, rate int) result {
	kept := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: maxPending}}
	own := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex
	var all sync.WaitGroup
	var r result
	pending := make(chan struct{}, maxPending)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			all.Wait()
			return r
		case <-tick.C:
			pending <- struct{}{} // get has a timeout
		}
		client := kept
		if r.Sent++; r.Sent%10 == 0 {
			client = own
		}
		all.Go(func() {
			defer func() { <-pending }()
			start := time.Now()
			err := get(client, url)
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			r.Failed++
			if len(r.Errors) == 20 {
				r.Errors = slices.Delete(r.Errors, 10, 11)
			}
			r.Errors = append(r.Errors, fmt.Sprintf("%s: %v", start.Format("15:04:05.000"), err))
		})
	}
}

// get sends one request. Errors: none came, or its status is not 200.
func get(c *http.Client, url string) error {
	r, err := c.Get(url)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = r.Body.Close()
	}
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", r.StatusCode, body)
	}
	return err
}
