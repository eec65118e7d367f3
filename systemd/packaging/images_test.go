package packaging

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The media types of an image. Source: the OCI Image Format Specification.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor names a blob of an image.
type descriptor struct {
	MediaType, Digest string
	Size              int
	Platform          struct{ Architecture, OS string }
	Annotations       map[string]string
}

// image is an archive that "make package" wrote.
type image struct {
	t      *testing.T
	files  map[string][]byte
	unused map[string]bool // blobs that nothing named yet
	config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
		RootFS struct {
			Type    string
			DiffIDs []string `json:"diff_ids"`
		}
	}
	tag    string
	layers [][]byte // tars, the lowest first
}

// readImage reads an archive and checks its layout.
func readImage(t *testing.T, path string) *image {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	i := &image{t: t, files: map[string][]byte{}, unused: map[string]bool{}}
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if i.files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatalf("%s: %s: %v", path, h.Name, err)
		}
		i.unused[h.Name] = strings.HasPrefix(h.Name, "blobs/")
	}
	maps.DeleteFunc(i.unused, func(_ string, blob bool) bool { return !blob })

	var layout struct{ ImageLayoutVersion string }
	i.decode(i.files["oci-layout"], &layout)
	if layout.ImageLayoutVersion != "1.0.0" {
		t.Errorf("%s: oci-layout %q", path, i.files["oci-layout"])
	}
	var index struct {
		SchemaVersion int
		MediaType     string
		Manifests     []descriptor
	}
	i.decode(i.files["index.json"], &index)
	if index.SchemaVersion != 2 || index.MediaType != mediaIndex || len(index.Manifests) != 1 {
		t.Fatalf("%s: index.json %s", path, i.files["index.json"])
	}
	var manifest struct {
		SchemaVersion int
		MediaType     string
		Config        descriptor
		Layers        []descriptor
	}
	i.decode(i.blob(index.Manifests[0], mediaManifest), &manifest)
	if manifest.SchemaVersion != 2 || manifest.MediaType != mediaManifest {
		t.Errorf("%s: manifest %+v", path, manifest)
	}
	i.decode(i.blob(manifest.Config, mediaConfig), &i.config)
	i.tag = index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
	p := index.Manifests[0].Platform
	if p.Architecture != i.config.Architecture || p.OS != "linux" || i.config.OS != "linux" {
		t.Errorf("%s: platform %+v in the index, %+v in the image", path, p, i.config)
	}
	i.readLayers(manifest.Layers)
	if len(i.unused) > 0 {
		t.Errorf("%s: nothing names %v", path, slices.Sorted(maps.Keys(i.unused)))
	}
	i.checkDocker(index.Manifests[0], manifest.Config, manifest.Layers)
	return i
}

// readLayers reads the layers, and compares them with those of the configuration.
func (i *image) readLayers(layers []descriptor) {
	i.t.Helper()
	var ids []string
	for _, d := range layers {
		r, err := gzip.NewReader(bytes.NewReader(i.blob(d, mediaLayer)))
		if err != nil {
			i.t.Fatal(err)
		}
		layer, err := io.ReadAll(r)
		if err != nil {
			i.t.Fatal(err)
		}
		ids = append(ids, digest(layer))
		i.layers = append(i.layers, layer)
	}
	if root := i.config.RootFS; root.Type != "layers" || !slices.Equal(root.DiffIDs, ids) {
		i.t.Errorf("layers %v, the configuration says %+v", ids, root)
	}
}

// checkDocker checks what "docker load" reads before Docker 25.
func (i *image) checkDocker(manifest, config descriptor, layers []descriptor) {
	i.t.Helper()
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	i.decode(i.files["manifest.json"], &docker)
	var want []string
	for _, d := range layers {
		want = append(want, blobPath(d))
	}
	name := manifest.Annotations["io.containerd.image.name"]
	if len(docker) != 1 || docker[0].Config != blobPath(config) || !slices.Equal(docker[0].Layers, want) ||
		!slices.Equal(docker[0].RepoTags, []string{name}) || !strings.HasSuffix(name, ":"+i.tag) {
		i.t.Errorf("manifest.json %+v, want config %s, layers %v, name %s with tag %s",
			docker, blobPath(config), want, name, i.tag)
	}
}

func (i *image) decode(text []byte, into any) {
	i.t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		i.t.Fatalf("%v in %q", err, text)
	}
}

// blob returns a blob, whose type, size and digest are checked.
func (i *image) blob(d descriptor, mediaType string) []byte {
	i.t.Helper()
	data := i.files[blobPath(d)]
	if d.MediaType != mediaType || d.Size != len(data) || d.Digest != digest(data) {
		i.t.Fatalf("%+v is %d bytes with digest %s, want type %s", d, len(data), digest(data), mediaType)
	}
	delete(i.unused, blobPath(d))
	return data
}

func blobPath(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// unpack writes the layers into a folder, and checks what each entry says.
func (i *image) unpack(dir string) {
	i.t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		i.t.Fatal(err)
	}
	defer root.Close()
	for _, layer := range i.layers {
		for r := tar.NewReader(bytes.NewReader(layer)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				i.t.Fatal(err)
			}
			if h.Uid != 0 || h.Gid != 0 || h.Mode&0o7022 != 0 || h.Mode&0o444 != 0o444 {
				i.t.Errorf("%s: owner %d:%d, mode %o; want root, readable by all and writable by nobody else",
					h.Name, h.Uid, h.Gid, h.Mode)
			}
			switch h.Typeflag {
			case tar.TypeDir:
				err = root.MkdirAll(strings.TrimSuffix(h.Name, "/"), 0o755)
			case tar.TypeSymlink:
				err = root.Symlink(h.Linkname, h.Name)
			case tar.TypeReg:
				var data []byte
				if data, err = io.ReadAll(r); err == nil {
					err = root.WriteFile(h.Name, data, h.FileInfo().Mode())
				}
			default:
				i.t.Errorf("%s has the type %c", h.Name, h.Typeflag)
			}
			if err != nil {
				i.t.Fatal(err)
			}
		}
	}
}

// images are those of each architecture.
func images() map[string]struct {
	user     string
	programs map[string][]string // with arguments that show a version
} {
	version, flag := []string{"version"}, []string{"--version"}
	return map[string]struct {
		user     string
		programs map[string][]string
	}{
		"ashored": {"65532:65532", map[string][]string{"ashored": flag, "ashorectl": version}},
		"ashore-agent": {"1337:1337", map[string][]string{
			"ashore-agent": version, "envoy": flag, "/usr/sbin/nft": flag,
		}},
	}
}

// Each image is a valid layout of its architecture. Its programs run with nothing but the image, as
// the image's user.
func TestImages(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, want := range images() {
			t.Run(name+" "+kind.arch, func(t *testing.T) {
				t.Parallel()
				i := readImage(t, built(t, name+"-[0-9]*-"+kind.arch+".oci.tar"))
				c := i.config.Config
				if i.config.Architecture != kind.arch || c.User != want.user ||
					!slices.Equal(c.Entrypoint, []string{"/usr/local/bin/" + name}) {
					t.Errorf("architecture %s, %+v", i.config.Architecture, c)
				}
				for _, label := range []string{"title", "version", "revision", "created", "licenses"} {
					if c.Labels["org.opencontainers.image."+label] == "" {
						t.Errorf("the label %s is missing in %v", label, c.Labels)
					}
				}
				dir := t.TempDir()
				i.unpack(dir)
				if roots, err := os.ReadFile(filepath.Join(dir, "etc/ssl/certs/ca-certificates.crt")); len(roots) < 100_000 {
					t.Errorf("%d bytes of CA certificates, %v", len(roots), err)
				}
				for program, args := range want.programs {
					if !filepath.IsAbs(program) {
						program = "/usr/local/bin/" + program
					}
					checkProgram(t, dir, program, kind.machine)
					if kind.arch == runtime.GOARCH && os.Geteuid() == 0 {
						runIn(t, dir, program, args...)
					}
				}
			})
		}
	}
}

// checkProgram checks a program's architecture, and that the image has its libraries.
func checkProgram(t *testing.T, dir, path string, machine elf.Machine) {
	t.Helper()
	program, err := elf.Open(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	if err != nil || program.Machine != machine {
		t.Errorf("%s: machine %v, %v", path, program.Machine, err)
	}
	for _, library := range libraries {
		var found []string
		for _, pattern := range []string{"lib*/", "lib/*/", "usr/lib/*/"} {
			more, err := filepath.Glob(filepath.Join(dir, pattern, library))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, more...)
		}
		if len(found) == 0 {
			t.Errorf("%s needs %s, which the image does not have", path, library)
		}
	}
}

// runIn runs a program with dir as its root.
func runIn(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 1337, Gid: 1337}}
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) == 0 {
		t.Errorf("%s %q in the image: %v\n%s", program, args, err, out)
	}
}
