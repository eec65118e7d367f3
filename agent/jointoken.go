package agent

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// checkToken says what is wrong with the form of a token, without saying any of it.
func checkToken(token string) error {
	parts := strings.Split(token, ".")
	switch {
	case token == "":
		return errors.New("the token is empty; paste the whole command of \"ashorectl join-token create\", with the lines from EOF to EOF")
	case len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("is not one of \"ashorectl join-token create\": it has spaces or other signs in it, or is too long")
	case len(parts) != 3 || parts[0] != "ashore-join" || parts[1] == "" || parts[2] == "":
		return errors.New("is not one of \"ashorectl join-token create\": want ashore-join.ID.SECRET, copied whole")
	}
	return nil
}

// maxToken bounds a token, in bytes.
const maxToken = 1 << 10

// ReadToken reads a token: all of r, without the line feed at its end.
func ReadToken(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxToken+2))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
