{{- define "trainyard.account" -}}
{{ if .Values.rbac.install }}{{ .Values.name }}{{ else }}{{ .Values.serviceAccount }}{{ end }}
{{- end }}

{{- define "trainyard.labels" -}}
app: {{ .Values.name }}
app.kubernetes.io/part-of: trainyard
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The content of the config file, "" when this chart does not make it. */}}
{{- define "trainyard.config" -}}
{{- if .Values.config }}{{ toYaml .Values.config }}
{{- else if .Values.cloud }}{{ .Files.Get (printf "generated/cloud-%s.yaml" .Values.cloud) }}
{{- end }}
{{- end }}

{{/* Whether there is a config file: ours, or one that was created before (the order matters). */}}
{{- define "trainyard.hasConfig" -}}
{{- if include "trainyard.config" . }}yes
{{- else if lookup "v1" "ConfigMap" .Release.Namespace "tf-job-operator-config" }}yes
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
