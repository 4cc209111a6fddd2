#!/usr/bin/env bash
# A probe by gRPC of a port that nobody listens on takes its whole timeout, and does not say that it was refused.
#
# What: the kubelet of Kubernetes 1.37.1: the package of its probes by `grpc`.
# Guess: as by tcpSocket and httpGet: the connection is refused, the probe fails at once, and the event says "connection
# refused".
# Seen: the library tries again until `timeoutSeconds` is over; then the probe fails with "timeout: failed to connect
# service ... within 3s: context deadline exceeded". A server that begins to listen meanwhile passes.
# So: "timeout" in the event of such a probe says nothing about a slow server, and a readiness probe with a long timeout
# delays the next one by all of it.
#
# Needs Go 1.26 or newer and its module proxy. A minute or two, most of it the build. Ends with 1 when the behaviour has
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
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe/grpc"
	probehttp "k8s.io/kubernetes/pkg/probe/http"
)

const timeout = 3 * time.Second

func main() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	action := &v1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt(port)}
	request, _ := probehttp.NewRequestForHTTPGetAction(action, &v1.Container{}, "", "probe")
	var client http.Client
	began := time.Now()
	_, text, _ := probehttp.DoHTTPProbe(request, &client)
	fmt.Printf("httpGet: after %.1f s: %s\n", time.Since(began).Seconds(), text)
	began = time.Now()
	result, text, _ := grpc.New().Probe("127.0.0.1", "", port, timeout, grpc.ProbeOptions{})
	took := time.Since(began)
	fmt.Printf("grpc: %s after %.1f s: %s\n", result, took.Seconds(), text)
	if result != "failure" || took < timeout || strings.Contains(text, "refused") {
		fmt.Println("changed")
		os.Exit(1)
	}
}
GO
go run .
