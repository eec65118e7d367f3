package main

import (
	"cmp"
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
		Use:   "describe KIND NAME | describe service HOST | describe workload NAME",
		Short: "Show an object, or what applies to a service or workload, with its problems",
		Example: `  ashorectl describe service api.shop.svc.cluster.local
  ashorectl describe workload web-1.shop
  ashorectl describe vs web -n shop -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch strings.ToLower(args[0]) {
			case "service", "services", "svc":
				return t.describeService(cmd, args[1], namespace)
			case "workload", "workloads", "pod":
				return t.describeApplied(cmd, admin.DescribeQuery{Workload: args[1]}, args[1])
			}
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
		ValidArgsFunction: t.kindAndName(false, "service", "workload"),
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
	o := found[0]
	problems, err := t.problemsOf(cmd, fmt.Sprintf("%s %s/%s", o.Kind, ref.Namespace, ref.Name))
	return description{object{o.APIVersion, o.Kind, o.Metadata, o.Spec}, o.Origin, problems}, err
}

// problemsOf returns the problems that are of one of some objects, or name a text.
func (t *tool) problemsOf(cmd *cobra.Command, texts ...string) ([]feed.Problem, error) {
	all, err := ask(t, cmd, admin.CallProblems, admin.None{})
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		texts[i] = regexp.QuoteMeta(text)
	}
	named := regexp.MustCompile(`(^|[^\w.-])(` + strings.Join(texts, "|") + `)([^\w-]|$)`)
	out := []feed.Problem{}
	for _, p := range all {
		if named.MatchString(p.Object) || named.MatchString(p.Text) {
			out = append(out, p)
		}
	}
	return out, nil
}

func (d description) text() string {
	text, err := toYAML(d.Object)
	if err != nil {
		text = err.Error() + "\n"
	}
	return sections(text, fmt.Sprintf("Read from: %s\n", placeOf(d.Origin)), problemTexts(d.Problems))
}

func problemTexts(list []feed.Problem) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, problemText(p, ""))
	}
	return cmp.Or(sections(texts...), "no problem names it\n")
}

// appliedDescription is what applies to a service or a workload, with the problems that name it.
type appliedDescription struct {
	admin.Description
	Problems []feed.Problem `json:"problems"`
}

// describeService describes the service of a host, which may be as short as for get.
func (t *tool) describeService(cmd *cobra.Command, name, namespace string) error {
	namespace, host, err := splitName(name, namespace)
	if err != nil {
		return usage(cmd, err)
	}
	found, err := t.findServices(cmd, admin.ServiceQuery{Namespace: namespace, Host: host})
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Host != found[len(found)-1].Host { // they are sorted
		return fmt.Errorf("%q does not name one service: write its host, as \"ashorectl get services\" shows it", name)
	}
	return t.describeApplied(cmd, admin.DescribeQuery{Service: found[0].Host}, host)
}

// describeApplied prints what applies to a service or a workload of that name.
func (t *tool) describeApplied(cmd *cobra.Command, q admin.DescribeQuery, name string) error {
	found, err := ask(t, cmd, admin.CallDescribe, q)
	if err != nil {
		return err
	}
	names := []string{name}
	for _, s := range found.Services {
		names = append(names, s.Host)
		for _, src := range s.Sources {
			names = append(names, cmp.Or(src.Object, s.Host))
		}
	}
	for _, o := range found.Objects {
		names = append(names, o.Object)
	}
	for _, w := range found.Workloads {
		names = append(names, w.Policies...)
	}
	d := appliedDescription{Description: found}
	if d.Problems, err = t.problemsOf(cmd, names...); err != nil {
		return err
	}
	return t.print(cmd, d, d.text())
}

func (d appliedDescription) text() string {
	services := newTable("SERVICE", "NAMESPACE", "PORTS", "ADDRESS", "RESOLUTION", "LOCATION", "DEFINED IN")
	endpoints := newTable("ENDPOINT", "PORTS", "HEALTH", "IDENTITY", "WORKLOAD", "LOCALITY", "OF SERVICE")
	for _, s := range d.Services {
		var sources []string
		for _, src := range s.Sources {
			sources = append(sources, declaredIn(src.Place))
		}
		services.add(s.Host, s.Namespace, servicePorts(s.Ports), strings.Join(s.Addresses, ","), s.Resolution, s.Location,
			strings.Join(sources, ","))
		for _, ep := range s.Endpoints {
			endpoints.add(ep.Address, endpointPorts(ep.Ports), endpointHealth(ep), ep.Identity,
				ep.Namespace+"/"+cmp.Or(ep.Workload, "-"), ep.Locality, s.Host)
		}
	}
	objects := newTable("OBJECT", "EFFECT", "READ FROM")
	for _, o := range d.Objects {
		_, place, _ := strings.Cut(strings.TrimSuffix(declaredIn(o.Place), ")"), "(")
		objects.add(o.Object, o.Effect, cmp.Or(place, o.Source))
	}
	workloads := newTable("WORKLOAD", "MUTUAL TLS", "POLICIES")
	for _, w := range d.Workloads {
		workloads.add(strings.Join(w.At, ", "), w.MutualTLS, strings.Join(w.Policies, ", "))
	}
	return sections(services.String(), cmp.Or(endpoints.String(), "no endpoints\n"),
		cmp.Or(objects.String(), "no VirtualService, DestinationRule or Gateway\n"), workloads.String(), problemTexts(d.Problems))
}
