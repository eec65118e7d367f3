package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
	_ "github.com/ashore-mesh/ashore/xds/envoytypes" // for the values of EnvoyFilters
)

func (t *tool) validateCommand() *cobra.Command {
	cmd := offlineCommand("validate", func(cmd *cobra.Command, files int, all filestore.Together) error {
		return t.report(cmd, all.Problems, fmt.Sprintf("%s in %s: no problems", count(len(all.Objects), "object"),
			count(files, "file")))
	})
	cmd.Short = "Validate configuration files without ashored; exit with 1 if there is an error"
	return cmd
}

func (t *tool) analyzeCommand() *cobra.Command {
	var settings string
	cmd := offlineCommand("analyze", func(cmd *cobra.Command, files int, all filestore.Together) error {
		mesh := &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}
		var warnings []config.Problem
		if settings != "" {
			var err error
			if mesh, warnings, err = meshOf(settings); err != nil {
				return usage(cmd, fmt.Errorf("--settings: %w", err))
			}
		}
		in, problems := offlineInputs(mesh, all.Objects)
		findings := []analyze.Finding{}
		for _, p := range slices.Concat(warnings, all.Problems, problems) {
			findings = append(findings, analyze.Invalid(p))
		}
		built := push.Build(nil, in)
		references := analyze.Offline(append(analyze.Run(cmd.Context(), built),
			analyze.UnknownPrincipals(cmd.Context(), built, nil)...), settings != "")
		setFieldLines(references)
		return t.reportFindings(cmd, append(findings, references...), fmt.Sprintf("%s in %s: nothing found",
			count(len(all.Objects), "object"), count(files, "file")))
	})
	cmd.Short = "Validate configuration files and the references between objects, without ashored"
	cmd.Flags().StringVar(&settings, "settings", "", "settings `file` of ashored, for its mesh and domain")
	must(cmd.MarkFlagFilename("settings", "yaml", "yml"))
	return cmd
}

// meshOf reads the mesh-wide settings of a settings file, and returns warnings about them. Other
// settings are not checked.
func meshOf(file string) (*push.Mesh, []config.Problem, error) {
	data, err := strictyaml.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	s := struct {
		Mesh   yaml.Node
		Domain string
	}{Domain: "cluster.local"}
	if err := yaml.Unmarshal(data, &s); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	section := &s.Mesh
	if section.IsZero() {
		section = nil
	}
	parsed, problems := config.ParseMesh(file, section)
	for _, p := range problems {
		if p.IsError() {
			return nil, nil, errors.New(p.String())
		}
	}
	return &push.Mesh{Config: parsed, Domain: s.Domain}, problems, nil
}

// offlineCommand returns a command that checks what files define.
func offlineCommand(name string,
	check func(cmd *cobra.Command, files int, all filestore.Together) error) *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use: name + " -f FILE|FOLDER|-",
		Example: strings.ReplaceAll(`  ashorectl NAME -f config/
  ashorectl NAME -f web.yaml -f db.yaml -o json
  render | ashorectl NAME -f -`, "NAME", name),
		RunE: func(cmd *cobra.Command, _ []string) error {
			pieces, problems, err := readFiles(cmd, paths)
			if err != nil {
				return err
			}
			all := filestore.Together{Problems: problems}
			for _, p := range pieces {
				all.Add(filestore.Parse(p.File, p.Data))
			}
			return check(cmd, len(pieces), all)
		},
	}
	filesFlag(cmd, &paths)
	return cmd
}

// offlineInputs returns a mesh with these objects and the services that they declare.
func offlineInputs(mesh *push.Mesh, objects []*config.Object) (push.Inputs, []config.Problem) {
	in := push.Inputs{Mesh: mesh}
	var problems []config.Problem
	for _, o := range objects {
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

// setFieldLines replaces the line of each object by that of the field, if the file can be read
// again.
func setFieldLines(list []analyze.Finding) {
	files := map[string]func(objectLine int, field string) int{}
	for i := range list {
		f := &list[i]
		if files[f.File] == nil {
			data, _ := filestore.Content(f.File) // empty for standard input
			files[f.File] = config.FieldLines(f.File, data)
		}
		f.Line = files[f.File](f.Line, f.Field)
	}
}

// reportFindings prints findings, errors first, or the text none. It returns errFound if one is an
// error.
func (t *tool) reportFindings(cmd *cobra.Command, list []analyze.Finding, none string) error {
	rank := map[feed.Severity]int{feed.Error: 0, feed.Warning: 1, analyze.Info: 2}
	slices.SortStableFunc(list, func(a, b analyze.Finding) int { return rank[a.Severity] - rank[b.Severity] })
	var problems []feed.Problem
	var texts []string
	for _, f := range list {
		text := problemText(f.Problem, f.Code)
		if f.Remedy != "" {
			text += "  To do: " + f.Remedy + "\n"
		}
		problems, texts = append(problems, f.Problem), append(texts, text)
	}
	return t.printProblems(cmd, list, problems, texts, none)
}
