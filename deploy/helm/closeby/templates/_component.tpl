{{/*
The workload of one component: a list of the root, the component's name, its values and arguments of its own.
The scheduler and the controllers differ in their arguments and their rights. Both read the configuration.
*/}}
{{- define "closeby.component" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $values := index . 2 }}
{{- $arguments := index . 3 }}
{{- $name := printf "%s-%s" (include "closeby.fullname" $root) $component }}
{{- $common := list "--leader-elect" (printf "--lease-name=%s" $name) "--metrics-address=:8080" }}
{{- $common = concat $common (include "closeby.secureMetrics" $root | fromYamlArray) }}
{{- with $root.Values.leaderElection }}
{{- $common = append $common (printf "--leader-elect-lease-duration=%s" .leaseDuration) }}
{{- $common = append $common (printf "--leader-elect-renew-deadline=%s" .renewDeadline) }}
{{- $common = append $common (printf "--leader-elect-retry-period=%s" .retryPeriod) }}
{{- end }}
{{- if $root.Values.scheduler.dryRun }}
{{- $common = append $common "--dry-run" }}
{{- end }}
{{- $certificate := include "closeby.certificate" $root }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
# The pods below ask for the token themselves.
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels:
      {{- include "closeby.selector" (list $root $component) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "closeby.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $component }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # A changed configuration starts new pods.
        checksum/configuration: {{ include "closeby.configuration" $root | sha256sum }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: {{ $component }}
          image: {{ include "closeby.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- toYaml (concat (list $component) $common $arguments $values.extraArgs) | nindent 12 }}
          ports:
            - name: metrics
              containerPort: 8080
          startupProbe:
            httpGet:
              path: /healthz
              port: metrics
              scheme: {{ include "closeby.scheme" $root }}
            periodSeconds: 2
            failureThreshold: 30
          livenessProbe:
            httpGet:
              path: /healthz
              port: metrics
              scheme: {{ include "closeby.scheme" $root }}
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet:
              path: /readyz
              port: metrics
              scheme: {{ include "closeby.scheme" $root }}
            periodSeconds: 5
            timeoutSeconds: 5
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - name: configuration
              mountPath: /etc/closeby
              readOnly: true
            {{- if $certificate }}
            {{- include "closeby.certificateMount" $root | nindent 12 }}
            {{- end }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: configuration
          configMap:
            name: {{ include "closeby.fullname" $root }}
        {{- if $certificate }}
        {{- include "closeby.certificateVolume" $root | nindent 8 }}
        {{- end }}
        {{- with $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        {{- if $values.affinity }}
        {{- toYaml $values.affinity | nindent 8 }}
        {{- else }}
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels:
                    {{- include "closeby.selector" (list $root $component) | nindent 20 }}
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}-metrics
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  # Every replica is asked by itself.
  clusterIP: None
  selector:
    {{- include "closeby.selector" (list $root $component) | nindent 4 }}
  ports:
    - name: metrics
      port: 8080
      targetPort: metrics
{{- if $values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "closeby.selector" (list $root $component) | nindent 6 }}
{{- end }}
{{- if $root.Values.metrics.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "closeby.selector" (list $root $component) | nindent 6 }}
  policyTypes: [Ingress]
  {{- with include "closeby.scrapers" $root | fromYamlArray }}
  ingress:
    - ports:
        - port: metrics
          protocol: TCP
      from:
        {{- toYaml . | nindent 8 }}
  {{- else }}
  ingress: []
  {{- end }}
{{- end }}
{{- if $root.Values.metrics.serviceMonitor.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
    {{- with $root.Values.metrics.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  endpoints:
    {{- include "closeby.endpoint" (list $root (printf "%s-metrics" $name)) | nindent 4 }}
  selector:
    matchLabels:
      {{- include "closeby.selector" (list $root $component) | nindent 6 }}
{{- end }}
{{- end }}

{{/* Binds the roles of one component to its service account: a list of the root and the component's name. */}}
{{- define "closeby.bindings" -}}
{{- $root := index . 0 }}
{{- $name := printf "%s-%s" (include "closeby.fullname" $root) (index . 1) }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
---
# The Lease that elects a leader. Whoever makes one can't be held to a name here: a policy does that.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ $name }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "closeby.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
