// Command protogen makes Go code of a .proto file without protoc:
//
//	cd tools/protogen && go run . -root ../.. mcp/legacypb/mcp.proto
//
// It compiles the file, hands it to protoc-gen-go and protoc-gen-go-grpc in the versions of this module's go.mod, and writes
// what they answer beside the file. Imports are resolved among the messages that are linked in below.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	_ "google.golang.org/genproto/googleapis/rpc/status"
	_ "istio.io/api/mcp/v1alpha1"
)

func main() {
	root := flag.String("root", ".", "folder that the files are named from")
	flag.Parse()
	for _, file := range flag.Args() {
		if err := generate(*root, file); err != nil {
			fmt.Fprintf(os.Stderr, "protogen: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

// generate writes the code of one file beside it.
func generate(root, file string) error {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{root}}, protocompile.ResolverFunc(linked),
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{file}, Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, describe(f))
	}
	add(compiled[0])
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(plugin, request, root); err != nil {
			return err
		}
	}
	return nil
}

// linked finds a file among the messages of this program.
func linked(path string) (protocompile.SearchResult, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Desc: f}, nil
}

// describe is f as plugins want it, with its comments.
func describe(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if own, ok := f.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return own.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(f)
}

// run has one plugin make its files and writes them.
func run(plugin string, request *pluginpb.CodeGeneratorRequest, root string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	answer := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %s", plugin, answer.GetError())
	}
	for _, f := range answer.File {
		if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
