package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
)

func (t *tool) analyzeCommand() *cobra.Command {
	var paths []string
	var follow bool
	cmd := &cobra.Command{
		Use:   "analyze -f FILE|FOLDER|-",
		Short: "Check files and how their objects fit together, without a running ashored",
		Long: `analyze validates configuration files, and finds references that lead nowhere and objects without effect. What a
registry could supply, such as the host of a Consul service, is a note, or a warning if the name looks misspelled.
"ashorectl problems" shows the same for a running ashored.

The exit code is 1 if there is an error, 0 otherwise, and 2 if a file or folder does not exist.`,
		Example: "  ashorectl analyze -f config/\n  ashorectl analyze -f web.yaml -f db.yaml\n  ashorectl " +
			"analyze -f config/ -o json | jq -r '.[] | select(.severity == \"error\").code'",
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := present(paths); err != nil {
				return usage(cmd, err)
			}
			files, problems := configFiles(paths, follow)
			var objects []*config.Object
			for _, name := range files {
				r, err := load(cmd.Context(), name, cmd.InOrStdin())
				if err != nil {
					return err
				}
				objects, problems = append(objects, r.Objects...), append(problems, r.Problems...)
			}
			findings := []analyze.Finding{}
			for _, p := range problems {
				findings = append(findings, analyze.Invalid(p))
			}
			in, duplicates := offlineInputs(objects)
			for _, p := range duplicates {
				findings = append(findings, analyze.Invalid(p))
			}
			between := analyze.Offline(analyze.Run(cmd.Context(), push.Build(nil, in)))
			setFieldLines(between)
			findings = append(findings, between...)
			fine := fmt.Sprintf("%s in %s: nothing found", count(len(objects), "object"), count(len(files), "file"))
			return t.reportFindings(cmd.OutOrStdout(), findings, fine)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringArrayVarP(&paths, "file", "f", nil, "file or folder to analyze, or - for standard "+
		"input; may be given several times")
	cmd.Flags().BoolVar(&follow, "follow-symlinks", false, "follow symlinks that lead out of a folder, as a "+
		"source with followSymlinks does")
	return cmd
}

// offlineInputs are a mesh of default settings with these objects and the services that they
// declare. An object that is defined twice counts from the first file, and is a problem.
func offlineInputs(objects []*config.Object) (push.Inputs, []config.Problem) {
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	var problems []config.Problem
	for _, o := range objects {
		if first := in.Objects.At(o.Key); first != nil {
			problems = append(problems, config.Problem{
				Severity: feed.Error, Object: o.Key.String(), File: o.Origin.File, Line: o.Origin.Line,
				Text: fmt.Sprintf("is defined in %s:%d too: remove one of the two",
					first.Origin.File, first.Origin.Line),
			})
			continue
		}
		in.Objects = in.Objects.With(o.Key, o)
	}
	for _, u := range entry.New(nil).Derive(in.Objects).Updates {
		problems = append(problems, u.Problems...)
		for _, i := range u.Items {
			in.Services = in.Services.With(i.Service.Key, i.Service)
			in.Endpoints = in.Endpoints.With(i.Service.Key, i.Endpoints)
		}
	}
	return in, problems
}

// setFieldLines replaces the line of each object by that of the field, where the file can be read
// again.
func setFieldLines(list []analyze.Finding) {
	files := map[string]func(objectLine int, field string) int{}
	for i := range list {
		f := &list[i]
		if files[f.File] == nil {
			data, _ := filestore.Content(f.File) // nothing if it is standard input or gone
			files[f.File] = config.FieldLines(f.File, data)
		}
		f.Line = files[f.File](f.Line, f.Field)
	}
}

// reportFindings writes findings, errors first; fine is what to say when there are none. Errors:
// errFound when one is an error.
func (t *tool) reportFindings(w io.Writer, list []analyze.Finding, fine string) error {
	rank := map[feed.Severity]int{feed.Error: 0, feed.Warning: 1, analyze.Info: 2}
	slices.SortStableFunc(list, func(a, b analyze.Finding) int { return rank[a.Severity] - rank[b.Severity] })
	if err := t.output.write(w, list, func(w io.Writer) error { return findingsText(w, list, fine) }); err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(f analyze.Finding) bool { return f.IsError() }) {
		return errFound
	}
	return nil
}

// findingsText is one paragraph a finding, and their number.
func findingsText(w io.Writer, list []analyze.Finding, fine string) error {
	n := map[feed.Severity]int{}
	for _, f := range list {
		n[f.Severity]++
		place := orDash(f.File)
		if f.Line > 0 {
			place += fmt.Sprintf(":%d", f.Line)
		}
		about := strings.TrimSpace(f.Object + "  " + f.Field)
		text := fmt.Sprintf("%s [%s] %s\n  %s\n  %s\n",
			strings.ToUpper(string(f.Severity)), f.Code, place, about, f.Text)
		if f.Remedy != "" {
			text += "  To do: " + f.Remedy + "\n"
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, fine)
		return err
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s\n",
		count(n[feed.Error], "error"), count(n[feed.Warning], "warning"), count(n[analyze.Info], "note"))
	return err
}
