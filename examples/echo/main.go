// Command echo is a small program to stand behind a proxy: it answers with what it received.
//
// It serves HTTP/1.1, HTTP/2 without TLS, and TCP, and is a client too: /call calls another service
// and returns its answer. Demonstrations and tests use it.
//
//	GET /any/path           JSON: what arrived, and who answers
//	    ?delay=200ms        answers that much later (or header x-delay)
//	    ?status=503         answers with that status (or header x-status)
//	    ?fail=0.2           fails that share of requests with 503
//	GET /stream?chunks=5&every=100ms  sends that many lines, one at a time
//	GET /call?url=URL       asks URL, through the HTTP proxy if one is set, and answers with its answer
//	    &times=100          asks that often and answers with how many each version answered
//	GET /requests           JSON: the number of requests so far
//
// A TCP connection gets the line "name version" first, and then back whatever it sends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(2)
	}
	if err := c.serve(ctx, func(http, tcp string) {
		fmt.Printf("%s %s answers HTTP at %s%s\n", c.name, c.version, http, tcp)
	}); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	name, version string
	http, tcp     string   // addresses; tcp may be empty
	proxy         *url.URL // for /call; nil: none
	grace         time.Duration
}

func parse(args []string) (*config, error) {
	c := &config{}
	fs := flag.NewFlagSet("echo", flag.ContinueOnError)
	fs.StringVar(&c.name, "name", "echo", "what it calls itself")
	fs.StringVar(&c.version, "version", "v1", "which version it says it is")
	fs.StringVar(&c.http, "http", "127.0.0.1:8080", "`address` for HTTP")
	fs.StringVar(&c.tcp, "tcp", "", "`address` for TCP (default: none)")
	proxy := fs.String("proxy", "", "`URL` of an HTTP proxy for /call, http://127.0.0.2:15007")
	fs.DurationVar(&c.grace, "grace", 5*time.Second, "how long open requests may go on at the end")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; see --help", fs.Arg(0))
	}
	if *proxy != "" {
		u, err := url.Parse(*proxy)
		if err != nil || u.Scheme != "http" || u.Host == "" {
			return nil, fmt.Errorf("--proxy %q is not a URL such as http://127.0.0.2:15007", *proxy)
		}
		c.proxy = u
	}
	return c, nil
}

// serve answers until ctx ends, and then lets open requests finish. Started receives the addresses.
func (c *config) serve(ctx context.Context, started func(http, tcp string)) error {
	var lc net.ListenConfig
	h, err := lc.Listen(ctx, "tcp", c.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	t, tcpText := net.Listener(nil), ""
	if c.tcp != "" {
		if t, err = lc.Listen(ctx, "tcp", c.tcp); err != nil {
			return errors.Join(fmt.Errorf("--tcp: %w", err), h.Close())
		}
		tcpText = ", TCP at " + t.Addr().String()
	}
	started(h.Addr().String(), tcpText)
	return c.run(ctx, h, t)
}
