{{/*
Gives each value that is missing its default. `helm upgrade --reuse-values` takes the values of the chart that was
installed, which lack what came later. Every template begins with this.
*/}}
{{- define "closeby.defaults" -}}
{{- include "closeby.fill" (list .Values (.Files.Get "defaults.yaml" | fromYaml)) -}}
{{- end }}

{{/* Fills a map by another one, at all depths; but what users replace as a whole stays as it is. */}}
{{- define "closeby.fill" -}}
{{- $values := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- if not (hasKey $values $key) -}}
{{- $_ := set $values $key $default -}}
{{- else if and (kindIs "map" $default) (not (has $key (list "configuration" "nodeSelector" "resources"))) -}}
{{- include "closeby.fill" (list (get $values $key) $default) -}}
{{- end -}}
{{- end -}}
{{- end }}

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

{{/* Whether the cluster serves ValidatingAdmissionPolicies that the API server enforces. */}}
{{- define "closeby.policies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{/* A user name of the API server in a CEL expression: a list of the root and the component's name. */}}
{{- define "closeby.user" -}}
{{- $root := index . 0 -}}
"system:serviceaccount:{{ $root.Release.Namespace }}:{{ include "closeby.fullname" $root }}-{{ index . 1 }}"
{{- end }}

{{/* A CEL expression: whether the scheduler or the controllers ask. */}}
{{- define "closeby.isOurs" -}}
request.userInfo.username == {{ include "closeby.user" (list . "scheduler") }}
{{- if .Values.controllers.enabled }} || request.userInfo.username == {{ include "closeby.user" (list . "controllers") }}{{ end }}
{{- end }}

{{/* The binding of a ValidatingAdmissionPolicy of the same name: a list of the root and the name. */}}
{{- define "closeby.policyBinding" -}}
{{- $root := index . 0 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
spec:
  policyName: {{ index . 1 }}
  validationActions: [Deny]
{{- end }}

{{/* The configured schedulerName. */}}
{{- define "closeby.schedulerName" -}}
{{ .Values.configuration.schedulerName | default "closeby" }}
{{- end }}

{{/* The namespaces whose PodDisruptionBudgets the configuration overrules, with commas. */}}
{{- define "closeby.overruled" -}}
{{- $found := list }}
{{- range .Values.configuration.plugins }}
{{- if kindIs "map" . }}
{{- $found = concat $found (dig "overruleBudgets" list (.arguments | default dict) | default list) }}
{{- end }}
{{- end }}
{{- uniq $found | join "," }}
{{- end }}

{{/* One flag for each excluded namespace; an empty one where there is none, since the flag has a default. */}}
{{- define "closeby.exclusions" -}}
{{- range (.Values.excludedNamespaces | default (list "")) }}
- --exclude-namespace={{ . }}
{{- end }}
{{- end }}

{{/* Flags of secure metrics, for any component. */}}
{{- define "closeby.secureMetrics" -}}
{{- if .Values.metrics.secure -}}
- --metrics-secure
{{- if .Values.metrics.tlsSecret }}
- --metrics-tls-cert=/etc/closeby-metrics/tls.crt
- --metrics-tls-key=/etc/closeby-metrics/tls.key
{{- end }}
{{- end }}
{{- end }}

{{/* The scheme of metrics and health, as probes and a ServiceMonitor name it. */}}
{{- define "closeby.scheme" -}}
{{ .Values.metrics.secure | ternary "HTTPS" "HTTP" }}
{{- end }}

{{/* Whether the certificate of the metrics is mounted. */}}
{{- define "closeby.certificate" -}}
{{- if and .Values.metrics.secure .Values.metrics.tlsSecret }}true{{ end }}
{{- end }}

{{- define "closeby.certificateMount" -}}
- name: metrics-tls
  mountPath: /etc/closeby-metrics
  readOnly: true
{{- end }}

{{- define "closeby.certificateVolume" -}}
- name: metrics-tls
  secret:
    secretName: {{ .Values.metrics.tlsSecret }}
    defaultMode: 0440
{{- end }}

{{/* Rules to ask the API server who scrapes, and whether he may. */}}
{{- define "closeby.reviews" -}}
# Whoever scrapes is asked for by his token, and whether he may.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{/* The peers that reach the metrics, for a NetworkPolicy's ingress rule; never empty, which would mean all. */}}
{{- define "closeby.scrapers" -}}
{{- range .Values.metrics.networkPolicy.namespaces }}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
{{- end }}
{{- with .Values.metrics.networkPolicy.from }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The endpoint of a ServiceMonitor: a list of the root and the name of the Service. */}}
{{- define "closeby.endpoint" -}}
{{- $root := index . 0 -}}
- port: metrics
  interval: {{ $root.Values.metrics.serviceMonitor.interval }}
  {{- if $root.Values.metrics.secure }}
  scheme: https
  bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
  tlsConfig:
    {{- if $root.Values.metrics.tlsSecret }}
    serverName: {{ index . 1 }}.{{ $root.Release.Namespace }}.svc
    ca:
      secret:
        name: {{ $root.Values.metrics.tlsSecret }}
        key: ca.crt
    {{- else }}
    # Each process has a certificate of its own making.
    insecureSkipVerify: true
    {{- end }}
  {{- end }}
{{- end }}
