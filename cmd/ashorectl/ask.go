package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// ask asks ashored one question. A question that makes no sense is an error of usage.
func ask[T any](t *tool, cmd *cobra.Command, question func(*admin.Client, context.Context) (T, error)) (T, error) {
	c, err := t.client()
	if err != nil {
		var none T
		return none, err
	}
	answer, err := question(c, cmd.Context())
	return answer, blamed(cmd, err)
}

// completionTime is how long a completion may take: people wait with a key pressed.
const completionTime = 2 * time.Second

// offer asks for what a shell completes: the words of an answer, without those that a shell might
// take for more than a word, for what a proxy calls itself is its own affair. It is silent where
// there is no answer.
func offer[T any](ctx context.Context, t *tool, question func(*admin.Client, context.Context) (T, error),
	words func(T) []string) ([]string, cobra.ShellCompDirective) {
	c, err := t.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	answer, err := question(c.Within(completionTime), ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	odd := func(word string) bool { return strings.Trim(strings.ToLower(word), plainLetters) != "" }
	return slices.DeleteFunc(words(answer), odd), cobra.ShellCompDirectiveNoFileComp
}

// plainLetters are those of words that stand for themselves in every shell, with the large ones.
const plainLetters = "abcdefghijklmnopqrstuvwxyz0123456789.-_/:"

// offerFirst completes the first argument, and no other.
func offerFirst(words func(context.Context) ([]string, cobra.ShellCompDirective)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(cmd.Context())
	}
}
