{{/* The names of a release's objects begin with its own. */}}
{{- define "kakeya.name" -}}
{{- ternary .Release.Name (printf "%s-kakeya" .Release.Name) (contains "kakeya" .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* (list $ PART): what the pods of a part are found by; it can never change. */}}
{{- define "kakeya.selector" -}}
app.kubernetes.io/name: kakeya
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "kakeya.labels" -}}
{{- $root := index . 0 -}}
{{ include "kakeya.selector" . }}
app.kubernetes.io/version: {{ $root.Values.images.tag | default $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{/* (list $ PART): name and labels of an object of a part. */}}
{{- define "kakeya.metadata" -}}
name: {{ include "kakeya.name" (index . 0) }}-{{ index . 1 }}
labels:
  {{- include "kakeya.labels" . | nindent 2 }}
{{- end }}

{{/* A value as a variable has it. Helm reads numbers as floats and would write 1.073741824e+09. */}}
{{- define "kakeya.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* (dict VARIABLE VALUE): entries of `env`. */}}
{{- define "kakeya.variables" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ include "kakeya.text" $value | quote }}
{{- end }}
{{- end }}

{{/* (list VARIABLE SECRET KEY): an entry of `env`. */}}
{{- define "kakeya.secretVariable" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef: {name: {{ index . 1 }}, key: {{ index . 2 }}}
{{- end }}

{{/* Of a pod's own address and name; before the variables that are made of them. */}}
{{- define "kakeya.podVariables" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end }}

{{/* Of a part's values: how long its pods may take to end. Its shutdown ends some seconds after its grace. */}}
{{- define "kakeya.graceSeconds" -}}
{{- add .shutdownGraceSeconds (default 0 .preStopSeconds) 10 }}
{{- end }}

{{/* (list $ PART PART-VALUES): what is the same in the pods of all parts. */}}
{{- define "kakeya.pod" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
terminationGracePeriodSeconds: {{ include "kakeya.graceSeconds" (index . 2) }}
automountServiceAccountToken: false
# Variables of services, such as KAKEYA_ROUTER_PORT, would look like settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "kakeya.selector" (list $root $part) | nindent 8 }}
  {{- end }}
{{- end }}

{{/* (list $ REPOSITORY PART-VALUES): image, rights and resources of a container. */}}
{{- define "kakeya.container" -}}
{{- $root := index . 0 -}}
image: "{{ index . 1 }}:{{ $root.Values.images.tag | default $root.Chart.AppVersion }}"
imagePullPolicy: {{ $root.Values.images.pullPolicy }}
securityContext:
  {{- include "kakeya.rights" . | nindent 2 }}
resources:
  {{- toYaml (index . 2).resources | nindent 2 }}
{{- end }}

{{- define "kakeya.rights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* (list SECRET PORT): asks gRPC health v1. The kubelet does so in plaintext only. */}}
{{- define "kakeya.health" -}}
{{- if index . 0 -}}
exec:
  command:
    - kakeya
    - health
    - --timeout-seconds=4
    - --tls-ca=/tls/own/ca.crt
    - --tls-cert=/tls/own/tls.crt
    - --tls-key=/tls/own/tls.key
    - 127.0.0.1:{{ index . 1 }}
{{- else -}}
grpc: {port: {{ index . 1 }}}
{{- end }}
{{- end }}

{{/* (list NAME SECRET KEY...): a volume of a secret, or of some keys of it alone. */}}
{{- define "kakeya.secretVolume" -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 }}
    # Of the pod's group, and nobody else.
    defaultMode: 0440
    {{- with slice . 2 }}
    items:
      {{- range . }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
    {{- end }}
{{- end }}

{{/* (list PORT PEERS): a rule of a NetworkPolicy. A rule without peers would let everybody in: there is none then. */}}
{{- define "kakeya.allowed" -}}
{{- with index . 1 -}}
- ports: [{port: {{ index $ 0 }}}]
  from:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
