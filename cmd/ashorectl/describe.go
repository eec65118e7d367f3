package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// description is an object with the problems that name it.
type description struct {
	Object   object         `json:"object"`
	Origin   admin.Origin   `json:"origin"`
	Problems []feed.Problem `json:"problems"`
}

func (t *tool) describeCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show an active object, where it was defined, and the problems that name it",
		Example: `  ashorectl describe virtualservice shop/web
  ashorectl describe vs web -n shop
  ashorectl describe authorizationpolicy shop/deny-all -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := objectRef(cmd, args, namespace)
			if err != nil {
				return err
			}
			d, err := t.describe(cmd, ref)
			if err != nil {
				return err
			}
			return t.print(cmd, d, d.text())
		},
		ValidArgsFunction: t.kindAndName(false),
	}
	namespaceFlag(cmd, &namespace)
	return cmd
}

func (t *tool) describe(cmd *cobra.Command, ref *admin.Ref) (description, error) {
	found, err := ask(t, cmd, admin.CallObjects, admin.ObjectQuery(*ref))
	if err != nil {
		return description{}, err
	}
	all, err := ask(t, cmd, admin.CallProblems, admin.None{})
	if err != nil {
		return description{}, err
	}
	o := found[0]
	d := description{object{o.APIVersion, o.Kind, o.Metadata, o.Spec}, o.Origin, []feed.Problem{}}
	key := fmt.Sprintf("%s %s/%s", o.Kind, ref.Namespace, ref.Name)
	named := regexp.MustCompile(regexp.QuoteMeta(key) + `([^\w-]|$)`)
	for _, p := range all {
		if p.Object == key || named.MatchString(p.Text) {
			d.Problems = append(d.Problems, p)
		}
	}
	return d, nil
}

func (d description) text() string {
	m := d.Object.Metadata
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-14s %s\n", name+":", printable(value))
		}
	}
	line("Kind", d.Object.Kind)
	line("Namespace", m.Namespace)
	line("Name", m.Name)
	line("Labels", pairs(m.Labels, ","))
	line("Annotations", pairs(m.Annotations, ","))
	line("Source", d.Origin.Source)
	line("Read from", placeOf(d.Origin))
	if !m.Created.IsZero() {
		line("Created", local(m.Created))
	}
	spec, err := toYAML(d.Object.Spec)
	if err != nil {
		spec = err.Error() + "\n"
	}
	texts := []string{b.String(), "Spec:\n" + indent(spec)}
	for _, p := range d.Problems {
		texts = append(texts, problemText(p, ""))
	}
	if len(d.Problems) == 0 {
		texts = append(texts, "no problems\n")
	}
	return sections(texts...)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
