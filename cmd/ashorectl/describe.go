package main

import (
	"fmt"
	"regexp"

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
	found, err := ask(t, cmd, admin.CallObjects,
		admin.ObjectQuery{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
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
	text, err := toYAML(d.Object)
	if err != nil {
		text = err.Error() + "\n"
	}
	texts := []string{text, fmt.Sprintf("Read from: %s\n", placeOf(d.Origin))}
	for _, p := range d.Problems {
		texts = append(texts, problemText(p, ""))
	}
	if len(d.Problems) == 0 {
		texts = append(texts, "no problems\n")
	}
	return sections(texts...)
}
