package testkube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

// Call sends a request to the API server as the administrator. in is sent as JSON unless it is nil.
// The answer is decoded into out unless that is nil. A status of 300 or more is an error.
func (c *Cluster) Call(method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, c.URL+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(answer, out)
	}
	return err
}

// Token returns a token of a ServiceAccount that the API server issued for one hour. pod is the
// name of the Pod that it is bound to. Empty means that it is bound to none. Without audiences the
// token is for the API server.
func (c *Cluster) Token(namespace, account, pod string, audiences ...string) string {
	c.t.Helper()
	spec := map[string]any{"audiences": audiences, "expirationSeconds": 3600}
	if pod != "" {
		spec["boundObjectRef"] = map[string]any{"apiVersion": "v1", "kind": "Pod", "name": pod}
	}
	var answer struct{ Status struct{ Token string } }
	path := fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s/token", namespace, account)
	if err := c.Call(http.MethodPost, path, map[string]any{"spec": spec}, &answer); err != nil {
		c.t.Fatal(err)
	}
	return answer.Status.Token
}

// Kubeconfig returns the path of a kubeconfig of a ServiceAccount, which has to exist.
func (c *Cluster) Kubeconfig(namespace, account string) string {
	c.t.Helper()
	return c.kubeconfig(namespace+"-"+account, "token: "+c.Token(namespace, account, ""))
}

// kubeconfig writes a kubeconfig with the credentials of a user.
func (c *Cluster) kubeconfig(name, credentials string) string {
	c.t.Helper()
	file := c.file(name + ".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %s}}]
users: [{name: test, user: {%s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, c.URL, c.cert, credentials)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return file
}
