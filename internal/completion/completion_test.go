package completion

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// An unknown shell is a usage error.
func TestRefine(t *testing.T) {
	t.Parallel()
	errUsage := errors.New("usage")
	for line, want := range map[string]string{
		"completion":           "",
		"completion bash":      "",
		"completion foo":       `program completion: there is no completion for "foo": name one of bash, fish, powershell, zsh`,
		"completion bash more": "program completion bash: too many",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			usage := func(cmd *cobra.Command, err error) error {
				if err == nil {
					return nil
				}
				return fmt.Errorf("%w: %s: %w", errUsage, cmd.CommandPath(), err)
			}
			noArgs := func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return nil
				}
				return usage(cmd, errors.New("too many"))
			}
			fine := func(*cobra.Command, []string) error { return nil }
			root := &cobra.Command{Use: "program", SilenceErrors: true, SilenceUsage: true, RunE: fine}
			root.AddCommand(&cobra.Command{Use: "run", RunE: fine})
			root.SetOut(io.Discard)
			root.SetArgs(strings.Fields(line))
			Refine(root, noArgs, usage)
			err := root.ExecuteContext(t.Context())
			if want == "" && err != nil || want != "" && (!errors.Is(err, errUsage) ||
				!strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
