package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) validateCommand() *cobra.Command {
	var paths []string
	var follow bool
	cmd := &cobra.Command{
		Use:   "validate -f FILE|FOLDER|-",
		Short: "Check each object of configuration files, without a running ashored",
		Long: `validate checks files as ashored does when it reads them: syntax, fields and values of each object. Folders are read
with their subfolders, without hidden files and links that lead elsewhere. "analyze" also checks references.

The exit code is 1 if there is an error, 0 otherwise, and 2 if a file or folder does not exist.`,
		Example: "  ashorectl validate -f config/\n  ashorectl validate -f web.yaml -f db.yaml\n  render | ashorectl validate -f -",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := present(paths); err != nil {
				return usage(cmd, err)
			}
			files, problems := configFiles(paths, follow)
			more, objects, err := check(cmd.Context(), files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			problems = append(problems, more...)
			return t.report(cmd.OutOrStdout(), problems, fmt.Sprintf("%s in %s: no problems", count(objects, "object"),
				count(len(files), "file")))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringArrayVarP(&paths, "file", "f", nil,
		"file or folder to check, or - for standard input; may be given several times")
	cmd.Flags().BoolVar(&follow, "follow-symlinks", false,
		"follow symlinks that lead out of a folder, as a source with followSymlinks does")
	return cmd
}

// stdin stands for standard input among paths, and stdinName in problems.
const (
	stdin     = "-"
	stdinName = "standard input"
)

// reason is an error of the file system without the path.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// configFiles are paths, with every folder replaced by the configuration files that ashored would
// read in it, sorted, and what is wrong with these folders. Symlinks out of them are followed with
// follow.
func configFiles(paths []string, follow bool) ([]string, []feed.Problem) {
	var out []string
	var problems []feed.Problem
	for _, path := range paths {
		if info, err := os.Stat(path); path == stdin || err != nil || !info.IsDir() {
			out = append(out, filepath.Clean(path))
			continue
		}
		files, wrong := filestore.List(path, follow)
		out, problems = append(out, files...), append(problems, wrong...)
	}
	slices.Sort(out)
	return slices.Compact(out), problems
}

// check reads files and returns what is wrong with them and how many objects are fine. An object in
// two files is an error in the second one. in is standard input, for a file of that name; an error
// says that it cannot be read.
func check(ctx context.Context, files []string, in io.Reader) ([]feed.Problem, int, error) {
	var all filestore.Together
	for _, name := range files {
		r, err := load(ctx, name, in)
		if err != nil {
			return nil, 0, err
		}
		all.Add(r)
	}
	return all.Problems, len(all.Objects), nil
}

// load reads a file, or standard input, which is waited for, as people ask for it.
func load(ctx context.Context, name string, in io.Reader) (config.Result, error) {
	if name != stdin {
		return filestore.Load(name), nil
	}
	data, err := readStdin(ctx, in)
	if err != nil {
		return config.Result{}, err
	}
	return filestore.Parse(stdinName, data), nil
}
