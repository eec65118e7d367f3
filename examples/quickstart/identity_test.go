package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// caller is the workload that experiments take something away from, as ashorectl names it.
const caller = "quickstart/frontend"

// plaintext calls the backend without a certificate, and then through the frontend's Envoy, which
// has one.
func (m *mesh) plaintext(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	direct := "http://" + m.at(workloads()[1], portIngress) + "/"
	_, err := m.get(ctx, direct)
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%s without a certificate: want the connection closed, got: %w", direct, orAnswer(err))
	}
	m.say("  %v", err)
	answer, err := m.get(ctx, m.askURL())
	if err != nil {
		return err
	}
	const want = "URI=spiffe://cluster.local/ns/quickstart/sa/frontend"
	if !strings.Contains(answer, want) {
		return fmt.Errorf("the backend was not told who called, %s: %s", want, answer)
	}
	m.say("  through the frontend's Envoy it answers, and received the caller's identity: %s", want)
	return nil
}

// orAnswer is err, or that there was an answer.
func orAnswer(err error) error {
	if err == nil {
		return errors.New("an answer")
	}
	return err
}

// deny puts a policy to work, asks why the calls are refused, and removes it.
func (m *mesh) deny(ctx context.Context) error {
	if err := m.flows(ctx); err != nil {
		return err
	}
	from, to := filepath.Join(m.extras(), "deny.yaml"), filepath.Join(m.config(), "deny.yaml")
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	m.say("  cp %s %s", from, to)
	if err := m.replace(to, data); err != nil {
		return err
	}
	err = m.refused(ctx)
	if err == nil {
		err = m.why(ctx)
	}
	m.say("  rm %s", to)
	if err = errors.Join(err, os.Remove(to)); err != nil {
		return err
	}
	return m.flows(ctx)
}

// why asks which policy it is.
func (m *mesh) why(ctx context.Context) error {
	out, err := m.order(ctx, "authz", "explain", caller, "quickstart/backend", "--method", "GET", "--path", "/")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "DENIED") || !strings.Contains(out, "quickstart/keep-out") {
		return fmt.Errorf("it does not say that the policy keep-out denies it: %s", out)
	}
	m.show(out)
	return nil
}

// revoke takes the frontend's identity away and gives it back.
func (m *mesh) revoke(ctx context.Context) error {
	if _, err := m.order(ctx, "workload", "revoke", caller, "--reason", "experiment"); err != nil {
		return err
	}
	err := m.refused(ctx)
	if err == nil {
		err = m.listed(ctx)
	}
	if _, restored := m.order(ctx, "workload", "restore", caller, "--reason", "over"); err != nil || restored != nil {
		return errors.Join(err, restored)
	}
	if err := m.flows(ctx); err != nil {
		return err
	}
	return m.accepted(ctx)
}

// listed shows the workloads; one of them has to be revoked.
func (m *mesh) listed(ctx context.Context) error {
	out, err := m.order(ctx, "workload", "list")
	if err == nil && !strings.Contains(out, "REVOKED") {
		err = fmt.Errorf("it shows nothing that is revoked: %s", out)
	}
	if err == nil {
		m.show(out)
	}
	return err
}

// accepted waits until the frontend's agent is connected to the control plane.
func (m *mesh) accepted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	return until(ctx, func() error {
		out, _, err := m.ask(ctx, "ashore-agent", "status", "--state", m.home(workloads()[0]))
		if err == nil && !strings.Contains(out, "control plane  ok") {
			err = fmt.Errorf("the frontend's agent is not connected:\n%s", out)
		}
		if err == nil {
			m.say("  ashore-agent status of the frontend:")
			m.show(out)
		}
		return err
	})
}

// refused waits until every call is answered with 403.
func (m *mesh) refused(ctx context.Context) error {
	return m.come(ctx, "refused with 403", func(s share) bool { return s.Failures["status 403"] == s.total() })
}

// flows waits until no call fails.
func (m *mesh) flows(ctx context.Context) error {
	return m.come(ctx, "answered", func(s share) bool { return s.failed() == 0 })
}

// come waits until 20 calls are as they should be.
func (m *mesh) come(ctx context.Context, how string, ok func(share) bool) error {
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	return until(ctx, func() error {
		s, err := m.measure(ctx, 20)
		if err == nil && (s.total() != 20 || !ok(s)) {
			err = fmt.Errorf("%v; want all of them %s", s, how)
		}
		if err == nil {
			m.say("  %v", s)
		}
		return err
	})
}
