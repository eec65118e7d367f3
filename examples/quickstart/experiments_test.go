package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// seeWithin bounds how long an experiment may take to show, on a machine however slow.
const seeWithin = time.Minute

// experiments are those that the guide offers, run and checked by the test.
func (m *mesh) experiments(ctx context.Context) error {
	for _, e := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"Traffic is shifted by editing one line", m.shift},
		{"A file is broken; traffic goes on, and the error is shown", m.breakFile},
		{"A caller without a certificate is refused", m.plaintext},
		{"A policy denies the frontend, and tells why; it is removed", m.deny},
		{"The frontend's identity is revoked, and restored", m.revoke},
		{"ashored is killed; traffic goes on, and ashored comes back", m.kill},
	} {
		m.say("\n%s", e.title)
		if err := e.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(e.title[:1])+e.title[1:], err)
		}
	}
	return nil
}

// edit replaces text in the file, as editors do.
func (m *mesh) edit(from, to string) error {
	path := m.splitFile()
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), from) {
		return fmt.Errorf("%s has no %q", path, from)
	}
	m.say("  in %s: %q becomes %q", path, from, to)
	return m.replace(path, []byte(strings.Replace(string(data), from, to, 1)))
}

// replace writes a file atomically.
func (m *mesh) replace(path string, data []byte) error {
	tmp := filepath.Join(m.o.dir, "edited")
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// expect waits until v2 gets about the wanted share of 1000 requests and none fails.
func (m *mesh) expect(ctx context.Context, want float64) error {
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	return until(ctx, func() error {
		s, err := m.measure(ctx, 1000)
		if err != nil {
			return err
		}
		// 5 % are more than five standard deviations for 1000 requests at this share, so a correct
		// split does not fail.
		got := float64(s.Answers["v2"]) / 1000
		if s.failed() > 0 || got < want-0.07 || got > want+0.07 {
			return fmt.Errorf("%v; want about %.0f %% from v2 and no failure", s, want*100)
		}
		m.say("  %v", s)
		return nil
	})
}

func (m *mesh) shift(ctx context.Context) error {
	if err := m.expect(ctx, 0.2); err != nil {
		return err
	}
	l := m.startLoad(ctx)
	err := m.edit("weight: 80", "weight: 5")
	if err == nil {
		err = m.expect(ctx, 0.8)
	}
	_, loadErr := l.end()
	return errors.Join(err, loadErr)
}

func (m *mesh) breakFile(ctx context.Context) error {
	l := m.startLoad(ctx)
	err := m.edit("subset: v2", "subsett: v2")
	if err == nil {
		err = m.problemShown(ctx)
	}
	if err == nil {
		err = m.expect(ctx, 0.8)
	}
	if err == nil {
		err = m.edit("subsett: v2", "subset: v2")
	}
	if err == nil {
		err = m.problemGone(ctx)
	}
	sum, loadErr := l.end()
	if err = errors.Join(err, loadErr); err == nil {
		m.say("  meanwhile %v", sum)
	}
	return err
}

// problemShown waits until the problem of the broken file names file, line and the intended field.
func (m *mesh) problemShown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	return until(ctx, func() error {
		text, code, err := m.ask(ctx, "ashorectl", "problems")
		if err != nil {
			return err
		}
		if code != 1 || !strings.Contains(text, "split.yaml:") || !strings.Contains(text, "subsett") {
			return fmt.Errorf("ashorectl problems does not show it (exit code %d):\n%s", code, text)
		}
		m.say("  ashorectl problems says:")
		m.show(text)
		return nil
	})
}

func (m *mesh) problemGone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	return until(ctx, func() error {
		text, code, err := m.ask(ctx, "ashorectl", "problems")
		if err == nil && code != 0 {
			err = fmt.Errorf("ashorectl problems still shows (exit code %d):\n%s", code, text)
		}
		if err == nil {
			m.say("  repaired: ashorectl problems says: %s", strings.TrimSpace(text))
		}
		return err
	})
}

func (m *mesh) kill(ctx context.Context) error {
	l := m.startLoad(ctx)
	err := m.killAndReturn(ctx)
	if err == nil {
		err = m.edit("weight: 5", "weight: 80") // it is in use again, not only there
	}
	if err == nil {
		err = m.expect(ctx, 0.2)
	}
	sum, loadErr := l.end()
	if err = errors.Join(err, loadErr); err == nil {
		m.say("  meanwhile %v", sum)
	}
	return err
}

// killAndReturn kills ashored and waits until another one is ready.
func (m *mesh) killAndReturn(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(m.o.dir, "ashored.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	m.say("  kill -9 %d", pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	gone := func() error {
		if _, err := m.get(ctx, m.ready()); err == nil {
			return errors.New("ashored still answers")
		}
		return nil
	}
	if err := until(ctx, gone); err != nil {
		return err
	}
	if err := until(ctx, func() error { _, err := m.get(ctx, m.ready()); return err }); err != nil {
		return fmt.Errorf("ashored does not come back: %w", err)
	}
	m.say("  ashored is back")
	return nil
}

// order is ask of what has to succeed; it shows the command.
func (m *mesh) order(ctx context.Context, args ...string) (string, error) {
	m.say("  ashorectl %s", strings.Join(args, " "))
	out, code, err := m.ask(ctx, "ashorectl", args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("ashorectl %s ends with %d: %s", strings.Join(args, " "), code, out)
	}
	return out, err
}
