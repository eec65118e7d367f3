package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// What takes long by itself is waited for, unless somebody said for how long.
func TestPatient(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want time.Duration
	}{{nil, revokeTime}, {[]string{"--timeout", "1s"}, time.Second}, {[]string{"--timeout", "10s"}, 10 * time.Second}} {
		tool := &tool{}
		cmd := &cobra.Command{RunE: func(cmd *cobra.Command,
			_ []string) error {
			tool.patient(cmd, revokeTime)
			return nil
		}}
		cmd.Flags().DurationVar(&tool.timeout, "timeout", 10*time.Second, "")
		cmd.SetArgs(tc.args)
		if err := cmd.Execute(); err != nil || tool.timeout != tc.want {
			t.Errorf("%q: got %s, %v, want %s", tc.args, tool.timeout, err, tc.want)
		}
	}
}
