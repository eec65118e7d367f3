package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// atMost refuses further arguments, with the way that the command is used.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usage(cmd, fmt.Errorf("%q is one argument too many: want %s", args[n], cmd.UseLine()))
	}
}

// between wants from least to most arguments; missing says what is, when there are too few.
func between(least, most int, missing func(*cobra.Command) string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usage(cmd, errors.New(missing(cmd)))
		}
		return atMost(most)(cmd, args)
	}
}

// wanted says of a flag that cannot be read what it takes, where the error has but the words of
// Go's parsers.
func wanted(err error) error {
	var number *strconv.NumError
	if errors.As(err, &number) {
		want := "want a whole number"
		if errors.Is(number, strconv.ErrRange) {
			want = "the number is too large"
		}
		return errors.New(strings.TrimSuffix(err.Error(), number.Error()) + want)
	}
	if before, _, ok := strings.Cut(err.Error(), "time: "); ok && errors.Unwrap(err) != nil {
		return errors.New(before + "want a number with its unit, such as 500ms, 10s or 2m")
	}
	return err
}
