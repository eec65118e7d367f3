package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// maxProbeAnswer is how much is read of an answer, in bytes.
const maxProbeAnswer = 64 << 10

// try is the way of a probe that has one; own is the workload's address.
func (p *Probe) try(own string) func(context.Context) error {
	switch {
	case p.HTTPGet != nil:
		return p.HTTPGet.try(own)
	case p.TCPSocket != nil:
		return p.TCPSocket.try(own)
	case p.GRPC != nil:
		return p.GRPC.try(own)
	default:
		return p.Exec.try
	}
}

// text says what is asked: "GET http://10.0.0.7:8080/ready". A command's arguments are left out.
func (p *Probe) text(own string) string {
	switch {
	case p.HTTPGet != nil:
		return "GET " + plain(p.HTTPGet.url(own))
	case p.TCPSocket != nil:
		return "a TCP connection to " + p.TCPSocket.address(own)
	case p.GRPC != nil:
		return "gRPC's health protocol at " + p.GRPC.address(own)
	default:
		return "the command " + plain(p.Exec.Command[0])
	}
}

// plain is text that does nothing to a terminal: some of it is the group's.
func plain(text string) string {
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}

// url is what is asked for; own is the workload's address.
func (h *ProbeHTTP) url(own string) string {
	return cmp.Or(strings.ToLower(h.Scheme), "http") + "://" + net.JoinHostPort(cmp.Or(h.Host, own), strconv.Itoa(h.Port)) + cmp.Or(h.Path, "/")
}

// try asks once; own is the workload's address.
func (h *ProbeHTTP) try(own string) func(context.Context) error {
	client, url, headers := probeClient(), h.url(own), h.Headers
	return func(ctx context.Context) (err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("User-Agent", "ashore-agent")
		for _, one := range headers {
			if strings.EqualFold(one.Name, "Host") {
				req.Host = one.Value
				continue
			}
			req.Header.Add(one.Name, one.Value)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxProbeAnswer))
		if resp.StatusCode < 200 || resp.StatusCode > 399 {
			return errors.Join(fmt.Errorf("%s answers %d", plain(url), resp.StatusCode), resp.Body.Close())
		}
		return errors.Join(err, resp.Body.Close())
	}
}

// address is what is connected to; own is the workload's address.
func (t *ProbeTCP) address(own string) string {
	return net.JoinHostPort(cmp.Or(t.Host, own), strconv.Itoa(t.Port))
}

// try connects once.
func (t *ProbeTCP) try(own string) func(context.Context) error {
	address := t.address(own)
	return func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// address is what is called; own is the workload's address.
func (g *ProbeGRPC) address(own string) string { return net.JoinHostPort(own, strconv.Itoa(g.Port)) }

// try asks once, over a connection of its own.
func (g *ProbeGRPC) try(own string) func(context.Context) error {
	address, service := g.address(own), g.Service
	return func(ctx context.Context) (err error) {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithUserAgent("ashore-agent"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service}, grpc.MaxCallRecvMsgSize(maxProbeAnswer))
		if err != nil {
			return fmt.Errorf("gRPC health of %s: %w", address, err)
		}
		if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return fmt.Errorf("gRPC health of %s is %s", address, answer.GetStatus())
		}
		return nil
	}
}

// try runs the command once. What it started ends with it when its time is over.
func (e *ProbeExec) try(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, e.Command[0], e.Command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", e.Command[0], err)
	}
	return nil
}

// probeClient looks at no certificate, follows no redirect and keeps no connection.
func probeClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // the application's own, on this machine; as Istio does
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}
