package probe

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
	networking "istio.io/api/networking/v1alpha3"
)

// maxProbeAnswer is the maximum that is read of an answer, in bytes.
const maxProbeAnswer = 64 << 10

// method returns the check of an allowed probe, and its description, such as
// "GET http://10.0.0.7:8080/ready". own is the workload's address, for probes without a host.
func method(p *networking.ReadinessProbe, own string) (run func(context.Context) error, text string) {
	at := func(host string, port uint32) string {
		return net.JoinHostPort(cmp.Or(host, own), strconv.FormatUint(uint64(port), 10))
	}
	if h := p.GetHttpGet(); h != nil {
		url := cmp.Or(strings.ToLower(h.GetScheme()), "http") + "://" + at(h.GetHost(),
			h.GetPort()) + cmp.Or(h.GetPath(), "/")
		return func(ctx context.Context) error { return probeHTTP(ctx, url, h.GetHttpHeaders()) }, "GET " + plain(url)
	}
	if command := p.GetExec().GetCommand(); len(command) > 0 {
		return func(ctx context.Context) error { return probeExec(ctx, command) }, "the command " + plain(command[0])
	}
	if g := p.GetGrpc(); g != nil {
		address := at("", g.GetPort())
		return func(ctx context.Context) error {
			return probeGRPC(ctx, address, g.GetService())
		}, "gRPC's health protocol at " + address
	}
	address := at(p.GetTcpSocket().GetHost(), p.GetTcpSocket().GetPort())
	return func(ctx context.Context) error { return probeTCP(ctx, address) }, "a TCP connection to " + plain(address)
}

// plain escapes control characters.
func plain(text string) string {
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}

// probeHTTP succeeds with a status from 200 to 399. It does not verify certificates and does not
// follow redirects. Source: Istio.
func probeHTTP(ctx context.Context, url string, headers []*networking.HTTPHeader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "ashore-agent")
	for _, h := range headers {
		if strings.EqualFold(h.GetName(), "Host") {
			req.Host = h.GetValue()
			continue
		}
		req.Header.Add(h.GetName(), h.GetValue())
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if op, ok := errors.AsType[*net.OpError](err); ok {
		// without the local port, so that equal failures have equal texts
		return fmt.Errorf("%s: %w", plain(url), op.Err)
	} else if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxProbeAnswer))
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		err = fmt.Errorf("%s answers %d", plain(url), resp.StatusCode)
	}
	return errors.Join(err, resp.Body.Close())
}

func probeTCP(ctx context.Context, address string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// probeGRPC calls grpc.health.v1.Health/Check, without TLS.
func probeGRPC(ctx context.Context, address, service string) (err error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithUserAgent("ashore-agent"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service},
		grpc.MaxCallRecvMsgSize(maxProbeAnswer))
	if err != nil {
		return fmt.Errorf("gRPC health of %s: %w", address, err)
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("gRPC health of %s is %s", address, answer.GetStatus())
	}
	return nil
}

// probeExec succeeds if the command exits with 0. At the timeout its process group is killed.
func probeExec(ctx context.Context, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return nil
}
