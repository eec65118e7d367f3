package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/env"
)

// checkCEL is the rule for an expression of the Common Expression Language. It accepts what Envoy
// does: Envoy rejects a whole listener for an expression with an unknown function. An unknown
// attribute, which Envoy accepts, would never have a value.
func checkCEL(expression string) string {
	_, why := compileCEL(expression)
	return why
}

// checkLogFilter is the rule for an expression that chooses what is logged.
func checkLogFilter(expression string) string {
	if expression == "" {
		return checkFilled(expression)
	}
	result, why := compileCEL(expression)
	const remedy = ": write one that is true or false, such as response.code >= 400"
	switch {
	case why != "":
		return why
	case result.IsExactType(cel.DynType) && isNumberOrText(expression):
		return "the expression is a number or a text" + remedy
	case !result.IsExactType(cel.BoolType) && !result.IsExactType(cel.DynType):
		return fmt.Sprintf("the expression is a %s%s", result, remedy)
	}
	return ""
}

// isNumberOrText reports whether an expression is one attribute of a group without booleans.
// Source: Envoy, "Attributes".
func isNumberOrText(expression string) bool {
	attribute := regexp.MustCompile(`^(request|response|source|destination|upstream)(\.\w+)*(\[[^]]*\])?$`)
	return attribute.MatchString(strings.TrimSpace(expression))
}

// checkTagValue is the rule for the value of a metric's tag. Percent signs delimit it for Envoy.
func checkTagValue(expression string) string {
	switch {
	case strings.Contains(expression, "%"):
		return fmt.Sprintf("%#q has a percent sign, which Envoy takes for the end of the value: write it without",
			shorten(expression))
	case strings.Contains(expression, "\n"): // Envoy 1.40, tried: "Couldn't find valid command"
		return quote(expression) + " has a line break, which Envoy rejects: write it in one line, for example without " +
			`"|" before it`
	}
	return checkCEL(expression)
}

// compileCEL returns the type of an expression, or what is wrong with it and where.
func compileCEL(expression string) (result *cel.Type, why string) {
	const known = "request, response, connection, upstream, source, destination, metadata, filter_state, " +
		"upstream_filter_state, xds"
	// Envoy 1.40, tried: no macros of lists ("Comprehension support is disabled"), no string(), which a
	// tag does not need, and re.extract beyond the standard functions.
	without := env.NewLibrarySubset().AddExcludedFunctions(env.NewFunction("string"))
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(without)), cel.ClearMacros(), cel.Macros(cel.HasMacro),
		cel.Function("re.extract", cel.Overload("re_extract",
			[]*cel.Type{cel.StringType, cel.StringType, cel.StringType}, cel.StringType)),
		cel.ASTValidators(cel.ValidateRegexLiterals()),
	}
	for name := range strings.SplitSeq(known, ", ") {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	compiler, err := cel.NewCustomEnv(options...)
	if err != nil {
		return nil, err.Error() // the options are constant
	}
	ast, issues := compiler.Compile(expression)
	if issues.Err() == nil {
		return ast.OutputType(), ""
	}
	first := issues.Errors()[0]
	text, unknown := strings.CutSuffix(first.Message, " (in container '')")
	text, _, _ = strings.Cut(text, " expecting {")
	if unknown {
		text += ": Envoy has no such function or attribute; the attributes are " + known
	}
	// Backquotes: a backslash of the expression is not doubled, as %q would.
	return nil, fmt.Sprintf("%#q: column %d: %s", shorten(expression), first.Location.Column()+1, text)
}
