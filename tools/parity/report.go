package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is what the two say about one document.
type result struct {
	document
	istio, ashore error // why it is refused
	ignored       []string
}

// compare asks both about the documents.
func (i *istio) compare(documents []document) []result {
	var out []result
	for _, d := range documents {
		r := result{document: d, istio: i.check(d)}
		r.ashore, r.ignored = ashore(d)
		out = append(out, r)
	}
	return out
}

// printReport prints the table and the documents on which the two differ. With both set it also
// prints those that both refuse.
func printReport(w io.Writer, title string, results []result, both bool) {
	fmt.Fprintf(w, "# %s\n\n", title)
	printTable(w, results)
	list := func(title string, reason func(result) string) {
		fmt.Fprintf(w, "\n## %s\n\n", title)
		kinds := byKind(results)
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			for _, r := range kinds[kind] {
				if why := reason(r); why != "" {
					fmt.Fprintf(w, "%s %s %s\n    %s\n", r.kind, r.place, r.name, shorten(why, 600))
				}
			}
		}
	}
	list("Refused only by Ashore, with its reason", func(r result) string {
		if r.istio == nil && r.ashore != nil {
			return r.ashore.Error()
		}
		return ""
	})
	list("Accepted only by Ashore, with Istio's reason", func(r result) string {
		if r.istio != nil && r.ashore == nil {
			return r.istio.Error()
		}
		return ""
	})
	list("Accepted by both, with fields that Ashore ignores", func(r result) string {
		if r.istio == nil && r.ashore == nil {
			return strings.Join(r.ignored, "; ")
		}
		return ""
	})
	if both {
		list("Refused by both, with the reasons of Istio and of Ashore", func(r result) string {
			if r.istio != nil && r.ashore != nil {
				return r.istio.Error() + " | " + r.ashore.Error()
			}
			return ""
		})
	}
	fmt.Fprintln(w)
}

// printTable prints how many documents of each kind the two accept and refuse.
func printTable(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "kind\taccepted by both\trefused by both\trefused only by Ashore\taccepted only by Ashore\t")
	kinds := byKind(results)
	row := func(name string, results []result) {
		var both, neither, istio, ashore int
		for _, r := range results {
			switch {
			case r.istio == nil && r.ashore == nil:
				both++
			case r.istio == nil:
				istio++
			case r.ashore == nil:
				ashore++
			default:
				neither++
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t\n", name, both, neither, istio, ashore)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		row(kind, kinds[kind])
	}
	row("all", results)
	t.Flush()
}

func byKind(results []result) map[string][]result {
	kinds := map[string][]result{}
	for _, r := range results {
		kinds[r.kind] = append(kinds[r.kind], r)
	}
	return kinds
}

// shorten puts a text on one line of at most limit bytes.
func shorten(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + " …"
	}
	return text
}
