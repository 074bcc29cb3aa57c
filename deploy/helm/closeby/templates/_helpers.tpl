{{- define "closeby.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "closeby.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "closeby.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "closeby.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "closeby.labels" -}}
app.kubernetes.io/name: {{ include "closeby.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What selects the pods of one component: a list of the root and the component's name. */}}
{{- define "closeby.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "closeby.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "closeby.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The files of /etc/closeby. */}}
{{- define "closeby.configuration" -}}
closeby.yaml: |
  {{- toYaml .Values.configuration | nindent 2 }}
{{- range $name, $content := .Values.modules }}
{{ $name }}: |
  {{- $content | nindent 2 }}
{{- end }}
{{- end }}
