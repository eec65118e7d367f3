package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// envoyFlag is the first argument that an agent gives to Envoy: with it this program stands for
// one.
const envoyFlag = "--config-path"

// simulatedEnvoy takes its configuration from the agent as Envoy does, and answers the agent's
// questions. It opens no ports and needs no time for what it is sent: what is measured is the agent
// alone.
func simulatedEnvoy(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%w: %s needs a file", errUsage, envoyFlag)
	}
	raw, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	var b bootstrapv3.Bootstrap
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, &b); err != nil {
		return fmt.Errorf("read the bootstrap %s: %w", args[1], err)
	}
	socket, err := agentSocket(&b)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", b.GetAdmin().GetAddress().GetPipe().GetPath())
	if err != nil {
		return fmt.Errorf("open the admin interface: %w", err)
	}
	var ready atomic.Bool
	web := &http.Server{Handler: adminInterface(&ready), ReadHeaderTimeout: time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	fleet.NewSimulator().Run(ctx, "unix:"+socket, b.GetNode(), nil, func() { ready.Store(true) })
	if err := errors.Join(web.Close(), <-failed); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// agentSocket is where the bootstrap says that configuration comes from.
func agentSocket(b *bootstrapv3.Bootstrap) (string, error) {
	for _, c := range b.GetStaticResources().GetClusters() {
		if c.GetName() != "xds-grpc" {
			continue
		}
		for _, group := range c.GetLoadAssignment().GetEndpoints() {
			for _, e := range group.GetLbEndpoints() {
				if path := e.GetEndpoint().GetAddress().GetPipe().GetPath(); path != "" {
					return path, nil
				}
			}
		}
	}
	return "", errors.New("the bootstrap names no unix socket of an agent")
}

// adminInterface answers what the agent asks of Envoy.
func adminInterface(ready *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, body func() any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			if pattern == "GET /ready" && !ready.Load() {
				http.Error(w, "PRE_INITIALIZING", http.StatusServiceUnavailable)
				return
			}
			if err := json.NewEncoder(w).Encode(body()); err != nil {
				return // the agent has gone
			}
		})
	}
	answer("GET /ready", func() any { return "LIVE" })
	answer("GET /server_info", func() any {
		return map[string]string{"version": "0/1.40.0/Clean/RELEASE/simulated",
			"state": "LIVE"}
	})
	answer("POST /drain_listeners", func() any { return "OK" })
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		if ready.Load() {
			n = 1
		}
		for _, name := range []string{"cluster_manager.cds.update_success", "listener_manager.lds.update_success",
			"listener_manager.workers_started"} {
			fmt.Fprintf(w, "%s: %d\n", name, n)
		}
	})
	return mux
}
