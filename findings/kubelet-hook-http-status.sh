#!/usr/bin/env bash
# A lifecycle hook by httpGet that the server answers with 500 has succeeded.
#
# What: the kubelet of Kubernetes 1.37.1: the package that runs `lifecycle.postStart` and `lifecycle.preStop`.
# Guess: an httpGet is judged as in a probe: a status from 200 to 399 passes, any other fails, and a postStart that fails
# ends the container.
# Seen: the status is not looked at. 500 and 404 are successes; only a connection that fails is a failure.
# So: a postStart httpGet cannot tell that a container has not come up, and a preStop whose server refuses to shut down is
# no event. Use `exec` with a client that fails.
#
# Needs Go 1.26 or newer and its module proxy. Five to ten minutes, most of it the build. Ends with 1 when the behaviour has
# changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export GOFLAGS="-modcacherw -mod=mod" CGO_ENABLED=0
go mod init finding 2>/dev/null
# In its own repository Kubernetes replaces the modules k8s.io/... by folders; outside they have versions of their own.
mod=$(go mod download -json k8s.io/kubernetes@v1.37.1 | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
sed -n 's,^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging/.*,\1,p' "$mod" | while read -r name; do
  go mod edit -replace "$name=$name@v0.37.1"
done
go mod edit -require k8s.io/kubernetes@v1.37.1
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

func main() {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		answer.WriteHeader(status)
	}))
	address, _ := url.Parse(server.URL)
	host, port, _ := net.SplitHostPort(address.Host)
	hook := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Host: host, Port: intstr.Parse(port), Path: "/"}}
	runner := lifecycle.NewHandlerRunner(http.DefaultClient, nil, nil, nil)
	run := func() error {
		_, err := runner.Run(context.Background(), kubecontainer.ContainerID{}, &v1.Pod{}, &v1.Container{}, hook)
		return err
	}
	changed := false
	for _, status = range []int{200, 404, 500} {
		err := run()
		fmt.Printf("a hook that is answered with %d: error %v\n", status, err)
		changed = changed || err != nil
	}
	server.Close()
	err := run()
	fmt.Println("a hook whose server does not listen:", err)
	if changed || err == nil {
		fmt.Println("changed")
		os.Exit(1)
	}
}
GO
go run .
