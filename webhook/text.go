package webhook

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
)

const (
	// fileHeader says what a text is called; so does the parameter file.
	fileHeader, fileParameter = "Ashore-File", "file"
	// maxName is how long that may be, in bytes.
	maxName = 1024
)

// text validates a file of configuration: 200 if it would be accepted, with or without warnings,
// else 422. The body is the list of problems, as "ashorectl validate -o json"
// prints it. Errors: a refusal.
func (s *Server) text(r *http.Request, data []byte) (answer, error) {
	name, err := fileName(r)
	if err != nil {
		return answer{}, err
	}
	result := filestore.Parse(name, data)
	problems := slices.Clone(result.Problems)
	slices.SortStableFunc(problems, func(a, b config.Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Line, b.Line))
	})
	code := http.StatusOK
	if slices.ContainsFunc(problems, config.Problem.IsError) {
		code = http.StatusUnprocessableEntity
	}
	if wantsText(r.Header.Values("Accept")) {
		return textAnswer(code, textLines(name, len(result.Objects), problems)), nil
	}
	if problems == nil {
		problems = []config.Problem{} // [] for programs, not null
	}
	return jsonAnswer(code, problems)
}

// fileName is the name of the text in problems. Errors: a refusal.
func fileName(r *http.Request) (string, error) {
	name := cmp.Or(r.Header.Get(fileHeader), r.URL.Query().Get(fileParameter), "request")
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", refusef(http.StatusBadRequest,
			"the name of the text is not one of a file: want up to %d bytes of UTF-8 without control characters", maxName)
	}
	return name, nil
}

// wantsText reports whether the client prefers text to JSON, which is the default.
func wantsText(accept []string) bool {
	before, _, found := strings.Cut(strings.Join(accept, ","), "text/plain")
	return found && !strings.Contains(before, jsonType)
}

// textLines has one line for each problem.
func textLines(name string, objects int, problems []config.Problem) string {
	if len(problems) == 0 {
		return fmt.Sprintf("%s: objects without problems: %d\n", name, objects)
	}
	var b strings.Builder
	for _, p := range problems {
		p.File = cmp.Or(p.File, name)
		fmt.Fprintf(&b, "%s %s\n", p.Severity, p)
	}
	return b.String()
}
