package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// imagePrefix begins the names of our own images. The kubelet leaves their containers to the test.
const imagePrefix = "localhost/"

// dist is where "make package" puts the images.
const dist = "../../../dist"

// unpackImage unpacks the image NAME for this machine into a folder.
func unpackImage(t *testing.T, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, name+"-[0-9]*-"+runtime.GOARCH+".oci.tar"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%d images %s in %s, want one (%v): run \"make package\"", len(found), name, dist, err)
	}
	archive, root := t.TempDir(), t.TempDir()
	untar := func(dir string, args ...string) {
		t.Helper()
		if out, err := exec.Command("tar", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("tar %q: %v\n%s", args, err, out)
		}
	}
	untar(archive, "-xf", found[0])
	text, err := os.ReadFile(filepath.Join(archive, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifests []struct{ Layers []string }
	if err := json.Unmarshal(text, &manifests); err != nil {
		t.Fatal(err)
	}
	for _, layer := range manifests[0].Layers {
		untar(root, "-xzf", filepath.Join(archive, layer))
	}
	return root
}

// containers run the containers of a Pod that have our images, as a container runtime does: with the
// image as a root that is read only, and the Pod's volumes.
type containers struct {
	c       *cluster
	ns      *harness.Namespace
	pod     *corev1.Pod
	images  map[string]string // unpacked, by name without tag
	volumes map[string]string // folders
	etc     string            // a folder with the files hosts and resolv.conf
}

// containersOf returns the containers of a running Pod. hosts are names with their addresses, instead
// of the DNS of a cluster.
func (c *cluster) containersOf(p *pod, images, hosts map[string]string) *containers {
	c.t.Helper()
	namespace, name, _ := strings.Cut(p.name, "/")
	object, err := c.client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	// Instead of kube-proxy, for the address of the API server.
	p.ns.Forward(strings.TrimPrefix(c.URL, "https://"), c.hub)
	out := &containers{c: c, ns: p.ns, pod: object, images: images, volumes: map[string]string{}}
	for _, v := range object.Spec.Volumes {
		out.volumes[v.Name] = out.volume(v)
	}
	out.etc = c.t.TempDir()
	text := "127.0.0.1 localhost\n"
	for name, address := range hosts {
		text += address + " " + name + "\n"
	}
	for name, text := range map[string]string{"hosts": text, "resolv.conf": "nameserver " + c.hub.IP + "\n"} {
		if err := os.WriteFile(filepath.Join(out.etc, name), []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	return out
}

// volume makes the folder of a volume.
func (x *containers) volume(v corev1.Volume) string {
	t := x.c.t
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mode, group := os.FileMode(0o755), 0
	switch {
	case v.ConfigMap != nil:
		for name, text := range x.configMap(v.ConfigMap.Name) {
			file(name, text)
		}
	case v.EmptyDir != nil:
		mode = 0o777
	case v.PersistentVolumeClaim != nil: // as the kubelet prepares a volume for fsGroup
		mode, group = 0o775|os.ModeSetgid, int(*x.pod.Spec.SecurityContext.FSGroup)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			switch {
			case s.ServiceAccountToken != nil:
				var audiences []string
				if a := s.ServiceAccountToken.Audience; a != "" {
					audiences = []string{a}
				}
				file(s.ServiceAccountToken.Path,
					x.c.Token(x.pod.Namespace, x.pod.Spec.ServiceAccountName, x.pod.Name, audiences...))
			case s.ConfigMap != nil:
				for name, text := range x.configMap(s.ConfigMap.Name) {
					file(name, text)
				}
			case s.DownwardAPI != nil:
				file("namespace", x.pod.Namespace)
			}
		}
	}
	if err := os.Chown(dir, 0, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (x *containers) configMap(name string) map[string]string {
	x.c.t.Helper()
	o, err := x.c.client.CoreV1().ConfigMaps(x.pod.Namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		x.c.t.Fatal(err)
	}
	return o.Data
}

// enter is a script that makes the root of a container in a mount namespace of its own, as "ip netns
// exec" makes one, and runs a program there: ROOT USER VOLUME:PATH… -- PROGRAM…
const enter = `set -e
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --bind /proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
	mount --bind "${1%:*}" "$root${1##*:}"
	shift
done
shift
exec chroot --userspec="$user" "$root" "$@"
`

// argv returns the program of a container. command replaces what the container runs, if it is given.
func (x *containers) argv(name string, command ...string) []string {
	t := x.c.t
	t.Helper()
	var container *corev1.Container
	for _, list := range [][]corev1.Container{x.pod.Spec.InitContainers, x.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				container = &list[i]
			}
		}
	}
	image, _, _ := strings.Cut(strings.TrimPrefix(container.Image, imagePrefix), ":")
	root := x.images[image]
	user := x.user(container)
	env := []string{"env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	host, port, _ := strings.Cut(strings.TrimPrefix(x.c.URL, "https://"), ":")
	values := map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	for _, e := range container.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"metadata.name": x.pod.Name, "metadata.namespace": x.pod.Namespace,
				"status.podIP": x.ns.IP}[e.ValueFrom.FieldRef.FieldPath]
		}
		values[e.Name] = value
	}
	for k, v := range values {
		env = append(env, k+"="+v)
	}
	out := append(env, "sh", "-c", enter, "sh", root, user)
	x.mountPoint(root, "/proc", true)
	x.mountPoint(root, "/dev", true)
	var mounts []string
	for _, m := range container.VolumeMounts {
		x.mountPoint(root, m.MountPath, true)
		mounts = append(mounts, x.volumes[m.Name]+":"+m.MountPath)
	}
	for _, name := range []string{"hosts", "resolv.conf"} {
		x.mountPoint(root, "/etc/"+name, false)
		mounts = append(mounts, filepath.Join(x.etc, name)+":/etc/"+name)
	}
	out = append(append(out, mounts...), "--")
	if len(command) == 0 {
		command = append(container.Command, container.Args...)
		if len(container.Command) == 0 {
			command = append([]string{"/usr/local/bin/" + image}, command...) // the entry point of our images
		}
	}
	for _, arg := range command {
		for k, v := range values {
			arg = strings.ReplaceAll(arg, "$("+k+")", v)
		}
		out = append(out, arg)
	}
	return out
}

// user returns user and group of a container.
func (x *containers) user(container *corev1.Container) string {
	user, group := container.SecurityContext.RunAsUser, container.SecurityContext.RunAsGroup
	if user == nil {
		user, group = x.pod.Spec.SecurityContext.RunAsUser, x.pod.Spec.SecurityContext.RunAsGroup
	}
	return fmt.Sprintf("%d:%d", *user, *group)
}

// mountPoint makes a folder or a file where something is mounted.
func (x *containers) mountPoint(root, at string, folder bool) {
	t := x.c.t
	t.Helper()
	dir := path.Dir(at)
	if folder {
		dir = at
	}
	if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if folder {
		return
	}
	file, err := os.OpenFile(filepath.Join(root, at), os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// run runs an init container to its end.
func (x *containers) run(name string) {
	x.c.t.Helper()
	if out, err := x.ns.Program(x.argv(name)...).CombinedOutput(); err != nil {
		x.c.t.Fatalf("%s of %s: %v\n%s", name, x.pod.Name, err, out)
	}
}

// start starts a container.
func (x *containers) start(name string) *harness.Process {
	x.c.t.Helper()
	return x.ns.Start(name+" of "+x.pod.Name, 0, x.argv(name)...)
}

// exec runs a program in a container, and returns what it prints.
func (x *containers) exec(name string, command ...string) (string, error) {
	x.c.t.Helper()
	out, err := x.ns.Program(x.argv(name, command...)...).CombinedOutput()
	return string(out), err
}
