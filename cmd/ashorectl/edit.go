package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) editCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "Edit an object of the store in $VISUAL or $EDITOR (default vi)",
		Example: `  ashorectl edit virtualservice shop/web
  ashorectl edit vs web -n shop
  EDITOR=nano ashorectl edit dr shop/db`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := objectRef(cmd, args, namespace)
			if err != nil {
				return err
			}
			return t.edit(cmd, ref)
		},
		ValidArgsFunction: t.kindAndName(true),
	}
	namespaceFlag(cmd, &namespace)
	return cmd
}

// edit writes what the operator's editor makes of an object, unless somebody else changed it
// meanwhile. A text that is refused stays in its file.
func (t *tool) edit(cmd *cobra.Command, ref *admin.Ref) error {
	found, err := ask(t, cmd, admin.CallObjects,
		admin.ObjectQuery{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Store: true})
	if err != nil {
		return err
	}
	o := found[0]
	o.Metadata.Created = time.Time{} // the store keeps it
	text, err := toYAML(object{o.APIVersion, o.Kind, o.Metadata, o.Spec})
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "ashorectl-edit-*.yaml")
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	edited, err := runEditor(cmd, file.Name())
	switch {
	case err != nil:
		return fmt.Errorf("%w; the text is in %s", err, file.Name())
	case bytes.Equal(edited, []byte(text)):
		return errors.Join(t.print(cmd, nil, "nothing was changed\n"), os.Remove(file.Name()))
	}
	err = t.write(cmd, admin.StoreWrite{Action: admin.Apply, At: o.Origin.Revision,
		Pieces: []admin.Piece{{File: file.Name(), Data: edited}}}, false)
	if err != nil {
		return fmt.Errorf("%w; the text is in %[2]s: correct it there, then \"ashorectl apply -f %[2]s\"", err, file.Name())
	}
	return os.Remove(file.Name())
}

// runEditor runs the operator's editor, and returns what it left in the file.
func runEditor(cmd *cobra.Command, file string) ([]byte, error) {
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	// A shell, because the variable may have arguments: "code --wait".
	run := exec.CommandContext(cmd.Context(), "sh", "-c", editor+` "$1"`, "sh", file)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("run the editor %s: %w", editor, err)
	}
	return os.ReadFile(file)
}

func (t *tool) diffCommand() *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use:   "diff -f FILE|FOLDER|-",
		Short: "Show what files would change in the store; exit with 1 if there is a difference",
		Example: `  ashorectl diff -f web.yaml
  ashorectl diff -f config/ && echo no difference
  render | ashorectl diff -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pieces, err := t.pieces(cmd, paths)
			if err != nil {
				return &codedError{exitUsage, err}
			}
			done, err := ask(t, cmd, admin.CallPreview, admin.StoreWrite{Action: admin.Apply, Pieces: pieces})
			if refused, ok := errors.AsType[*admin.Refusal](err); ok && len(refused.Problems) > 0 {
				err = t.nothingWritten(cmd, refused.Problems)
			}
			if err != nil {
				return &codedError{exitUsage, err}
			}
			text := ""
			for _, c := range done.Changes {
				text += c.Difference
			}
			if err := t.print(cmd, done, text); err != nil {
				return &codedError{exitUsage, err}
			}
			if changesAnything(done.Changes) {
				return errFound
			}
			return nil
		},
	}
	filesFlag(cmd, &paths)
	return cmd
}
