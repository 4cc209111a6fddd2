#!/usr/bin/env bash
# Two identical requests get two different errors from a Kubernetes API server.
#
# What: k8s.io/apiextensions-apiserver 0.37.1 (Kubernetes 1.37.1), with which kube-apiserver validates custom resources.
# Guess: the errors of an object come in the order of its fields, or sorted by path, so that a client may compare texts.
# Seen: the same object is validated a thousand times against one schema, in one process. Its four errors come in four
# orders, each a rotation of the others. One of them comes about six times in ten, another one in the next process. The
# validator walks over a Go map, whose iteration begins at a random entry.
# kube-apiserver joins these errors to `message`, and lists them in `details.causes`, in that order.
# So: compare the set of causes, never the message of a refusal, of kubectl's stderr or of an Event that repeats it; and
# remove duplicates of such messages by their causes, or one refusal looks like four.
#
# Needs Go and the module proxy; about a minute. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func main() {
	least := 1.0
	schema := apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{}}
	spec := map[string]interface{}{}
	for _, name := range []string{"alpha", "beta", "gamma", "delta"} {
		schema.Properties[name] = apiextensions.JSONSchemaProps{Type: "integer", Minimum: &least}
		spec[name] = int64(0)
	}
	validator, _, err := validation.NewSchemaValidator(&schema)
	if err != nil {
		panic(err)
	}
	orders := map[string]int{}
	for range 1000 {
		fields := []string{}
		for _, problem := range validation.ValidateCustomResource(field.NewPath("spec"), spec, validator) {
			fields = append(fields, problem.Field)
		}
		if len(fields) != len(spec) {
			panic(fields)
		}
		orders[strings.Join(fields, " ")]++
	}
	for order, count := range orders {
		fmt.Printf("%4d times: %s\n", count, order)
	}
	if len(orders) == 1 {
		fmt.Println("changed: one order in a thousand validations")
		os.Exit(1)
	}
	fmt.Printf("seen: %d orders of the same %d errors\n", len(orders), len(spec))
}
GO
go mod init order 2>/dev/null
go get k8s.io/apiextensions-apiserver@v0.37.1 2>/dev/null
go run -mod=mod . 2>&1 | grep -v '^go: '
