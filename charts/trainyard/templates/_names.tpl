{{- define "trainyard.account" -}}
{{ if .Values.rbac.install }}{{ .Values.name }}{{ else }}{{ .Values.serviceAccount }}{{ end }}
{{- end }}

{{- define "trainyard.labels" -}}
app: {{ .Values.name }}
app.kubernetes.io/part-of: trainyard
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The annotations of an object, as its field; "" without any. */}}
{{- define "trainyard.annotations" -}}
{{- with .Values.annotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The kinds that are served, separated by commas, in the order of the operator. */}}
{{- define "trainyard.kinds" -}}
{{- $known := .Files.Get "generated/kinds.yaml" | fromYaml }}
{{- range $kind := .Values.kinds }}
{{- if not (hasKey $known.kinds $kind) }}
{{- fail (printf "kinds: %q is not a kind of job; write some of %s" $kind (join ", " (keys $known.kinds | sortAlpha))) }}
{{- end }}
{{- end }}
{{- $served := list }}
{{- range $kind := $known.order }}
{{- $chosen := ternary (has $kind $known.default) (has $kind $.Values.kinds) (empty $.Values.kinds) }}
{{- if or $chosen (and $.Values.chainerjob (eq $kind "ChainerJob")) }}{{ $served = append $served $kind }}{{ end }}
{{- end }}
{{- join "," $served }}
{{- end }}

{{/* The rules for the served kinds that are opt-in, or that are not: (list . true) or (list . false). */}}
{{- define "trainyard.rules" -}}
{{- $root := index . 0 }}{{ $optIn := index . 1 -}}
{{- $known := $root.Files.Get "generated/kinds.yaml" | fromYaml }}
{{- if and (not $optIn) (empty $root.Values.kinds) }}{{ $root.Files.Get "generated/rules-operator.yaml" }}
{{- else if and $optIn (empty $root.Values.kinds) }}
{{- if $root.Values.chainerjob }}{{ $root.Files.Get "generated/rules-chainerjob.yaml" }}{{ end }}
{{- else }}
{{- $rules := list }}
{{- range $kind := splitList "," (include "trainyard.kinds" $root) }}
{{- if eq $optIn (has $kind $known.optIn) }}
{{- $rules = concat $rules ($root.Files.Get (printf "generated/rules-%s.yaml" (get $known.kinds $kind)) | fromYamlArray) }}
{{- end }}
{{- end }}
{{- with $rules }}{{ toYaml . }}{{ end }}
{{- end }}
{{- end }}

{{/* The content of the config file, "" when this chart does not make it. */}}
{{- define "trainyard.config" -}}
{{- if .Values.config }}{{ toYaml .Values.config }}
{{- else if .Values.cloud }}{{ .Files.Get (printf "generated/cloud-%s.yaml" .Values.cloud) }}
{{- end }}
{{- end }}

{{/* A role and its binding: (list . name rules prefix namespace), where prefix is Cluster or nothing. */}}
{{- define "trainyard.role" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $prefix := index . 3 }}{{ $namespace := index . 4 -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}Role
metadata:
  name: {{ $name }}
  {{- if not $prefix }}
  namespace: {{ $namespace }}
  {{- end }}
  {{- with include "trainyard.annotations" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  labels:
    {{- include "trainyard.labels" $root | nindent 4 }}
rules:
{{ index . 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}RoleBinding
metadata:
  name: {{ $name }}
  {{- if not $prefix }}
  namespace: {{ $namespace }}
  {{- end }}
  {{- with include "trainyard.annotations" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  labels:
    {{- include "trainyard.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $prefix }}Role
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ include "trainyard.account" $root }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* The metadata of an object of the release's namespace: (list . name labels). */}}
{{- define "trainyard.metadata" -}}
{{- $root := index . 0 -}}
metadata:
  name: {{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  {{- with include "trainyard.annotations" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  labels:
    {{- include "trainyard.labels" $root | nindent 4 }}
    {{- with index . 2 }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
