package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
)

// Result is what Parse found in one file.
type Result struct {
	// Objects are those without an error, in the order of the file. Each has passed Validate.
	Objects []*Object
	// Problems are what is wrong with the file, in the order of their lines. An object is validated
	// when all of it could be read.
	Problems []Problem
	// Broken are the keys of documents that were refused, each once: their last good versions
	// should stay. Objects may have an object of the same key, from an earlier document.
	Broken []Key
	// Unread says that some part was refused whose key could not be read: any object that the file
	// held before may be meant by it.
	Unread bool
	// Malformed says that some part is not text that can be read: a syntax error, or a limit is
	// exceeded. Unread is set too.
	Malformed bool
}

// Parse reads a file of Istio's configuration: YAML or JSON, any number of documents, and the kind
// List. JSON is read as the YAML that it is. A document with an error is refused and the others are
// read all the same; a syntax error hides the documents behind it. Of two documents with one key the
// second is refused. name is the file in problems and in the Origin of objects;
// only data is read.
func Parse(name string, data []byte) Result {
	p := newParser(name, data)
	p.parse(data)
	return p.result()
}

func newParser(name string, data []byte) *parser {
	return &parser{file: name, kinds: Kinds(), defined: map[Key]int{}, room: maxCost*len(data) + MaxAliasSize}
}

func (p *parser) parse(data []byte) {
	for _, doc := range p.documents(data) {
		if p.affordable(doc) {
			p.document(doc, false)
		}
	}
}

// parser is the state of reading one file.
type parser struct {
	file  string
	kinds []KindInfo

	objects   []*Object   // without an error
	defined   map[Key]int // the line of the first object of each key, also of refused ones
	broken    []Key
	unread    bool
	malformed bool
	problems  []Problem
	errors    int                // reported, also beyond MaxProblems
	omitted   int                // problems for which MaxProblems leaves no room
	lines     map[int]fieldLines // by the first line of an object; nil: not kept
	room      int                // what documents may still cost, with their aliases written out; see cost
}

// documents reads the syntax of a file, up to the first error.
func (p *parser) documents(data []byte) []*yaml.Node {
	if len(data) > MaxFileSize {
		p.refuse(0, fmt.Sprintf("the file has %d bytes, more than %d: split it into several files", len(data),
			MaxFileSize))
		return nil
	}
	if line, bad := invalidUTF8(data); bad {
		p.refuse(line, "the text is not UTF-8: save the file as UTF-8")
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if filepath.Ext(p.file) == ".json" {
		data = escape(data)
	}
	var out []*yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			line, text := strictyaml.SyntaxError(data, err)
			p.refuse(line, text)
			return out
		case len(out) == MaxDocuments:
			p.refuse(doc.Line, fmt.Sprintf("the file has more than %d documents: split it into several files", MaxDocuments))
			return nil
		case len(doc.Content) == 1:
			out = append(out, doc.Content[0])
		}
	}
}

// affordable says that a document is not made to cost memory or time by nesting or aliases.
func (p *parser) affordable(root *yaml.Node) bool {
	left, deep := p.room, false
	cost(root, 0, &left, &deep)
	p.room = left
	switch {
	case deep:
		p.refuse(root.Line, fmt.Sprintf("values nest deeper than %d levels: an alias (*name) may stand within its own anchor (&name)", MaxDepth))
	case left < 0:
		p.refuse(root.Line, fmt.Sprintf(
			"aliases (*name) stand for more than %d bytes: write less with them, or several files", MaxAliasSize))
	}
	return !deep && left >= 0
}

// valueCost is what a value costs beside its text; maxCost is more than a byte of a file without
// aliases can cost.
const valueCost, maxCost = 8, 10

// cost takes what a value costs from left, those behind aliases each time.
func cost(n *yaml.Node, depth int, left *int, deep *bool) {
	n = deref(n)
	*left -= valueCost + len(n.Value)
	*deep = *deep || depth > MaxDepth
	for _, c := range n.Content {
		if *left < 0 || *deep {
			return
		}
		cost(c, depth+1, left, deep)
	}
}

// document reads one document, which may be a List of further ones.
func (p *parser) document(root *yaml.Node, nested bool) {
	if isNull(root) {
		return
	}
	before := p.errors
	d := &decoder{parser: p, root: root, where: fieldLines{}}
	head, ok := d.head()
	switch {
	case !ok:
		p.unread = true
	case head.kind == listKind && nested:
		d.errorf("", root, "a List within a List is not read: make one list of them")
		p.unread = true
	case head.kind == listKind:
		p.unread = p.unread || p.errors != before
		p.list(d, head)
	default:
		p.object(d, head, before)
	}
}

// list reads the items of a document of kind List.
func (p *parser) list(d *decoder, head head) {
	if head.items == nil || head.items.Kind != yaml.SequenceNode {
		d.errorf("", d.root, "a List needs items, a list of objects")
		p.unread = true
		return
	}
	for _, item := range head.items.Content {
		p.document(item, true)
	}
}

// object reads one object and keeps it when there are no more errors than before.
func (p *parser) object(d *decoder, head head, before int) {
	o, ok := d.object(head)
	if !ok {
		p.unread = true
		return
	}
	if line, twice := p.defined[o.Key]; twice {
		p.report(Problem{Severity: feed.Error, Object: o.Key.String(), Line: o.Origin.Line,
			Text: fmt.Sprintf("line %d of the same file defines it too and takes precedence: remove one of the two", line)})
		p.broken = append(p.broken, o.Key)
		return
	}
	p.defined[o.Key] = o.Origin.Line
	if p.lines != nil {
		p.lines[o.Origin.Line] = d.where
	}
	if p.errors == before { // a partly decoded object would have false errors
		problems, _ := Accept(o)
		for _, problem := range problems {
			problem.Line = d.where.of(problem.Field, o.Origin.Line)
			p.report(problem)
		}
	}
	if p.errors != before {
		p.broken = append(p.broken, o.Key)
		return
	}
	p.objects = append(p.objects, o)
}

// result puts everything in order.
func (p *parser) result() Result {
	slices.SortFunc(p.broken, Key.Compare)
	return Result{
		Objects:   p.objects,
		Problems:  p.sortedProblems(),
		Broken:    slices.Compact(p.broken),
		Unread:    p.unread,
		Malformed: p.malformed,
	}
}

// refuse reports a part of the file whose keys could not be read.
func (p *parser) refuse(line int, text string) {
	p.unread, p.malformed = true, true
	p.report(Problem{Severity: feed.Error, File: p.file, Line: line, Text: text})
}

// report adds a problem of the file. With MaxProblems of them an error replaces a warning.
func (p *parser) report(problem Problem) {
	problem.File = p.file
	if problem.Severity == feed.Error {
		p.errors++
	}
	if len(p.problems) < MaxProblems {
		p.problems = append(p.problems, problem)
		return
	}
	p.omitted++
	warning := slices.IndexFunc(p.problems, func(q Problem) bool { return q.Severity != feed.Error })
	if problem.Severity == feed.Error && warning >= 0 {
		p.problems[warning] = problem
	}
}

// sortedProblems are in the order of their lines, with one more when some were omitted.
func (p *parser) sortedProblems() []Problem {
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	if p.omitted == 0 {
		return p.problems
	}
	more := Problem{Severity: feed.Warning, File: p.file, Line: p.problems[MaxProblems-1].Line,
		Text: fmt.Sprintf("there are more than %d problems in this file: correct the first ones to see the others",
			MaxProblems)}
	if p.errors > 0 {
		more.Severity = feed.Error
	}
	return append(p.problems, more)
}

// invalidUTF8 returns the line of the first byte that is not part of UTF-8 text.
func invalidUTF8(data []byte) (line int, bad bool) {
	if utf8.Valid(data) {
		return 0, false
	}
	line = 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return line, true
}
