package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// completionTimeout is how long a completion may take.
const completionTimeout = 2 * time.Second

// safeLetters are the letters, besides capital ones, that no shell interprets. Proxies choose their
// own names, so other names are not completed.
const safeLetters = "abcdefghijklmnopqrstuvwxyz0123456789.-_/:"

// words completes fixed words.
func words(list ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// complete asks ashored for the names that a shell offers; there are none if it does not answer.
func complete[Q, A any](t *tool, cmd *cobra.Command, call admin.Call[Q, A], q Q, names func(A) []string) []string {
	c, err := t.client()
	if err != nil {
		return nil
	}
	answer, err := admin.Send(cmd.Context(), c.Within(completionTimeout), call, q)
	if err != nil {
		return nil
	}
	unsafe := func(name string) bool { return strings.Trim(strings.ToLower(name), safeLetters) != "" }
	return slices.DeleteFunc(names(answer), unsafe)
}

// argument completes the argument at index with the names of list.
func argument(index int, list func(*cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) != index {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list(cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

// proxyNames returns the names of the connected proxies.
func (t *tool) proxyNames(cmd *cobra.Command) []string {
	return complete(t, cmd, admin.CallStatus, admin.None{}, func(s admin.Status) (out []string) {
		for _, p := range s.Proxies {
			out = append(out, p.ID)
		}
		return out
	})
}

// kindAndName completes KIND NAME; stored offers the objects of the store instead of the active ones.
func (t *tool) kindAndName(stored bool, more ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return append(kinds(), more...), cobra.ShellCompDirectiveNoFileComp
		case 1:
			return t.objectNames(cmd, args[0], stored), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func (t *tool) objectNames(cmd *cobra.Command, kind string, stored bool) []string {
	namespace := ""
	if f := cmd.Flags().Lookup("namespace"); f != nil {
		namespace = f.Value.String()
	}
	call := admin.CallObjects
	if stored {
		call = admin.CallStored
	}
	q := admin.ObjectQuery{Kind: kind, Namespace: namespace}
	return complete(t, cmd, call, q, func(found []admin.Object) (out []string) {
		for _, o := range found {
			if namespace != "" {
				out = append(out, o.Metadata.Name)
			} else {
				out = append(out, o.Metadata.Namespace+"/"+o.Metadata.Name)
			}
		}
		return out
	})
}

// kinds returns the supported kinds in lower case.
func kinds() []string {
	var out []string
	for _, k := range config.Kinds() {
		if k.Supported {
			out = append(out, strings.ToLower(string(k.Kind)))
		}
	}
	return out
}
