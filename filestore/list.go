package filestore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// List returns the sorted paths of the files that a Source of dir reads, and the problems of
// folders and symlinks. It does not read files.
func List(dir string) ([]string, []config.Problem) {
	l := scan(dir, maxEntries)
	files := make([]string, 0, len(l.files))
	var problems []config.Problem
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		path := filepath.Join(dir, name)
		var refused refusedError
		if _, err := inside(dir, path); errors.As(err, &refused) {
			problems = append(problems, fileProblem(path, err))
			continue
		}
		files = append(files, path)
	}
	for _, rel := range slices.Sorted(maps.Keys(l.failed)) {
		problems = append(problems, folderProblem(filepath.Join(dir, rel), l.failed[rel]))
	}
	for _, rel := range slices.Sorted(maps.Keys(l.repeats)) {
		p := l.repeats[rel]
		p.File = filepath.Join(dir, rel)
		problems = append(problems, p)
	}
	return files, problems
}

// Content returns the content of a file for Parse: of a file that is too large only the beginning,
// which Parse refuses. The problem is why the file cannot be read.
func Content(path string) ([]byte, []config.Problem) {
	f, err := openRegular(path, os.Stat, os.OpenFile)
	if err != nil {
		return nil, []config.Problem{fileProblem(path, err)}
	}
	data, _, err := readFile(f)
	if err != nil {
		return nil, []config.Problem{fileProblem(path, err)}
	}
	return data, nil
}

// Parse parses the content of a file. An empty file is a problem. The extension of name selects
// YAML or JSON.
func Parse(name string, data []byte) config.Result {
	if empty(data) {
		return emptyResult(name, emptyArgument)
	}
	return config.Parse(name, data)
}

// fileProblem returns the problem of a file that cannot be read.
func fileProblem(path string, err error) config.Problem {
	return problem(path, "the file", err, "make it readable, or delete it")
}

// folderProblem returns the problem of a folder that cannot be read.
func folderProblem(path string, err error) config.Problem {
	return problem(path, "the folder", err, "restore it, or make it readable")
}

func problem(path, what string, err error, remedy string) config.Problem {
	text := fmt.Sprintf("%s cannot be read (%v): %s", what, err, remedy)
	if refused := refusedError(""); errors.As(err, &refused) {
		text = what + " is not read: " + refused.Error()
	}
	return config.Problem{Severity: feed.Error, File: path, Text: text}
}
