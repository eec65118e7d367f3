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

// storeFiles are the files that a command writes to the store.
type storeFiles struct {
	paths     []string
	recursive bool
}

// flags adds those of f to a command.
func (f *storeFiles) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.paths, "file", "f", nil,
		"`FILE` or folder, or - for standard input; may be given several times")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "include subfolders")
}

// read reads all files; what cannot be read is in the problems. An error is one of usage, or of
// standard input.
func (f *storeFiles) read(cmd *cobra.Command) ([]admin.Piece, []feed.Problem, error) {
	if err := present(f.paths); err != nil {
		return nil, nil, usage(cmd, err)
	}
	names, problems := configFiles(f.paths, false)
	if !f.recursive {
		var err error
		if names, err = f.shallow(cmd, names); err != nil {
			return nil, nil, usage(cmd, err)
		}
	}
	if len(names) == 0 && feed.Errors(problems) == 0 {
		return nil, nil, usage(cmd, fmt.Errorf("there is no file of configuration (.yaml, .yml, .json) in %s",
			f.paths[0]))
	}
	var out []admin.Piece
	size := 0
	for _, name := range names {
		p := admin.Piece{File: name}
		var wrong []feed.Problem
		var err error
		if name == stdin {
			p.File = stdinName
			p.Data, err = readStdin(cmd.Context(), cmd.InOrStdin())
		} else {
			p.Data, wrong = filestore.Content(name)
		}
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, wrong...)
		if size += len(p.Data); size > admin.MaxApply {
			return nil, nil, usage(cmd,
				fmt.Errorf("the files have more than %d MiB together: write them in several steps", admin.MaxApply>>20))
		}
		out = append(out, p)
	}
	return out, problems, nil
}

// shallow are the names without those below folders that were named. It says when nothing is left.
func (f *storeFiles) shallow(cmd *cobra.Command, names []string) ([]string, error) {
	given := map[string]bool{}
	for _, p := range f.paths {
		given[filepath.Clean(p)] = true
	}
	deep := func(name string) bool { return !given[name] && !given[filepath.Dir(name)] }
	all := len(names)
	names = slices.DeleteFunc(names, deep)
	left := all - len(names)
	switch {
	case left > 0 && len(names) == 0:
		return nil, fmt.Errorf("the files of configuration are in folders below: -R takes these, too")
	case left > 0:
		complain(cmd.ErrOrStderr(), "%s in folders below left out: -R takes these, too", count(left, "file"))
	}
	return names, nil
}

// present says which path is not there.
func present(paths []string) error {
	if len(paths) == 0 {
		return errors.New("name at least one file or folder with -f")
	}
	for _, p := range paths {
		if p == stdin {
			continue
		}
		if _, err := os.Stat(p); err != nil {
			if to, linkErr := os.Readlink(p); linkErr == nil {
				return fmt.Errorf("-f %s: it is a link to %s, and that: %w; mend the link, or name a file or folder that is there", p, to, reason(err))
			}
			return fmt.Errorf("-f %s: %w; name a file or folder that is there", p, reason(err))
		}
	}
	return nil
}

// readStdin reads standard input, one byte more than allowed, which shows that there is too much.
// Where it is interrupted somebody still waits for more of it, until the program ends.
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

// each hands out pieces.
func each(list []admin.Piece) admin.Pieces {
	return func(yield func(admin.Piece, error) bool) {
		for _, p := range list {
			if !yield(p, nil) {
				return
			}
		}
	}
}
