package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// stdin is standard input among paths, and stdinName in problems.
const (
	stdin     = "-"
	stdinName = "standard input"
)

// filesFlag adds the flag --file.
func filesFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringArrayVarP(paths, "file", "f", nil,
		"file, folder with its subfolders, or - for standard input; can be repeated")
	must(cmd.MarkFlagFilename("file", "yaml", "yml", "json"))
}

// configFiles returns paths with each folder replaced by its configuration files, sorted, and the
// problems of these folders. The error is one of usage.
func configFiles(cmd *cobra.Command, paths []string, followSymlinks bool) ([]string, []feed.Problem, error) {
	if len(paths) == 0 {
		return nil, nil, usage(cmd, errors.New("no file: name at least one file or folder with -f"))
	}
	var out []string
	var problems []feed.Problem
	for _, path := range paths {
		if path == stdin {
			out = append(out, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil, usage(cmd, fmt.Errorf("-f: %w", err))
		}
		if !info.IsDir() {
			out = append(out, filepath.Clean(path))
			continue
		}
		files, wrong := filestore.List(path, followSymlinks)
		out, problems = append(out, files...), append(problems, wrong...)
	}
	slices.Sort(out)
	return slices.Compact(out), problems, nil
}

// parseFiles reads and parses files. The error is one of standard input.
func parseFiles(cmd *cobra.Command, files []string) ([]config.Result, error) {
	var out []config.Result
	for _, name := range files {
		if name != stdin {
			out = append(out, filestore.Load(name))
			continue
		}
		data, err := readStdin(cmd.Context(), cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		out = append(out, filestore.Parse(stdinName, data))
	}
	return out, nil
}

// readPieces reads the files for a request to the store, and returns the problems of those that
// cannot be read. The error is one of usage or of standard input.
func readPieces(cmd *cobra.Command, paths []string) ([]admin.Piece, []feed.Problem, error) {
	names, problems, err := configFiles(cmd, paths, false)
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 && len(problems) == 0 {
		return nil, nil, usage(cmd, fmt.Errorf("no file .yaml, .yml or .json in %s", paths[0]))
	}
	var out []admin.Piece
	size := 0
	for _, name := range names {
		p := admin.Piece{File: name}
		if name == stdin {
			p.File = stdinName
			if p.Data, err = readStdin(cmd.Context(), cmd.InOrStdin()); err != nil {
				return nil, nil, err
			}
		} else {
			var wrong []feed.Problem
			p.Data, wrong = filestore.Content(name)
			problems = append(problems, wrong...)
		}
		if size += len(p.Data); size > admin.MaxApply {
			return nil, nil, usage(cmd, fmt.Errorf("the files have more than %d MiB: write them in several commands",
				admin.MaxApply>>20))
		}
		out = append(out, p)
	}
	return out, problems, nil
}

// readStdin reads standard input, at most one byte more than a file may have. If ctx ends first,
// its goroutine remains until the process ends.
func readStdin(ctx context.Context, in io.Reader) ([]byte, error) {
	var data []byte
	read := make(chan error, 1)
	go func() {
		var err error
		data, err = io.ReadAll(io.LimitReader(in, config.MaxFileSize+1))
		read <- err
	}()
	select {
	case <-ctx.Done():
		return nil, errors.New("interrupted before standard input ended: nothing was done")
	case err := <-read:
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	}
}
