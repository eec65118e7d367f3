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

// readFiles reads the files of paths, sorted, and those of folders, and returns the problems of what
// cannot be read. The error is one of usage or of standard input.
func readFiles(cmd *cobra.Command, paths []string) ([]admin.Piece, []feed.Problem, error) {
	if len(paths) == 0 {
		return nil, nil, usage(cmd, errors.New("no file: name at least one file or folder with -f"))
	}
	var names []string
	var problems []feed.Problem
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case path == stdin:
			names = append(names, path)
		case err != nil:
			return nil, nil, usage(cmd, fmt.Errorf("-f: %w", err))
		case info.IsDir():
			files, wrong := filestore.List(path)
			names, problems = append(names, files...), append(problems, wrong...)
		default:
			names = append(names, filepath.Clean(path))
		}
	}
	slices.Sort(names)
	var out []admin.Piece
	for _, name := range slices.Compact(names) {
		if name == stdin {
			data, err := readStdin(cmd.Context(), cmd.InOrStdin())
			if err != nil {
				return nil, nil, err
			}
			out = append(out, admin.Piece{File: stdinName, Data: data})
			continue
		}
		data, wrong := filestore.Content(name)
		if problems = append(problems, wrong...); len(wrong) == 0 {
			out = append(out, admin.Piece{File: name, Data: data})
		}
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
