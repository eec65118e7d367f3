package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) validateCommand() *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use:   "validate -f FILE|FOLDER|-",
		Short: "Check configuration files without a running ashored",
		Long: `validate reads configuration files as ashored does and says what is wrong with them, without asking
a running one. Folders are read with all folders below them; hidden ones are left out. "-f -" reads
standard input.

It exits with 1 when there is an error, with 0 when there is nothing or only warnings, and with 2 when a
file or folder is not there.`,
		Example: "  ashorectl validate -f config/\n  ashorectl validate -f web.yaml -f db.yaml\n  render | ashorectl validate -f -",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(paths) == 0 {
				return usage(cmd, errors.New("name at least one file or folder with -f"))
			}
			for _, p := range paths {
				if p == stdin {
					continue
				}
				if _, err := os.Stat(p); err != nil {
					return usage(cmd, fmt.Errorf("-f %s: %w; name a file or folder that is there", p, reason(err)))
				}
			}
			files, err := configFiles(paths)
			if err != nil {
				return err
			}
			problems, objects := check(files, cmd.InOrStdin())
			return t.report(cmd.OutOrStdout(), problems, fmt.Sprintf("%s in %s: no problems", count(objects, "object"), count(len(files), "file")))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringArrayVarP(&paths, "file", "f", nil, "file or folder to check, or - for standard input; may be given several times")
	return cmd
}

// stdin stands for standard input among paths.
const stdin = "-"

// reason is an error of the file system without the path.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// configFiles are paths, with every folder replaced by the configuration files in it, sorted.
func configFiles(paths []string) ([]string, error) {
	var out []string
	for _, root := range paths {
		if root == stdin {
			out = append(out, root)
			continue
		}
		if info, err := os.Stat(root); err == nil && info.IsDir() {
			root += string(filepath.Separator) // the folder, also where a symlink leads to it
		}
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch hidden := p != root && strings.HasPrefix(d.Name(), "."); {
			case err != nil:
				return err
			case hidden && d.IsDir():
				return filepath.SkipDir
			case d.IsDir() || hidden || p != root && !isConfig(p):
				return nil
			}
			out = append(out, p)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look for configuration files: %w; name a file or folder that can be read", err)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// isConfig says whether ashored reads a file of this name, in small letters alone.
func isConfig(p string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p))
}

// check reads files and returns what is wrong with them and how many objects are fine. An object in
// two files is an error in the second one. in is standard input, for a file of that name.
func check(files []string, in io.Reader) ([]feed.Problem, int) {
	var problems []feed.Problem
	seen := map[config.Key]config.Origin{}
	for _, name := range files {
		data, err := read(name, in)
		if name == stdin {
			name = "standard input"
		}
		if err != nil {
			problems = append(problems, feed.Problem{Severity: feed.Error, File: name, Text: fmt.Sprintf("the file cannot be read (%v): mend that, or delete it", err)})
			continue
		}
		r := config.Parse(name, data)
		problems = append(problems, r.Problems...)
		for _, o := range r.Objects {
			if first, twice := seen[o.Key]; twice {
				problems = append(problems, feed.Problem{Severity: feed.Error, Object: o.Key.String(), File: o.Origin.File, Line: o.Origin.Line,
					Text: fmt.Sprintf("is defined in %s:%d too: remove one of the two", first.File, first.Line)})
				continue
			}
			seen[o.Key] = o.Origin
		}
	}
	return problems, len(seen)
}

// read reads a regular file of a size that Parse takes. Opening anything else, a pipe say, could wait
// for ever. Standard input is waited for, as people ask for it.
func read(name string, in io.Reader) ([]byte, error) {
	if name == stdin {
		return io.ReadAll(io.LimitReader(in, config.MaxFileSize+1)) // one more than allowed shows Parse that there is too much
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > config.MaxFileSize:
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", info.Size(), config.MaxFileSize)
	}
	return os.ReadFile(name)
}
