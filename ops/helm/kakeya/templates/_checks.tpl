{{/* What must fit together; values.schema.json looks at each value alone. */}}
{{- define "kakeya.checks" -}}
{{- $redis := .Values.redis -}}
{{- $tls := .Values.tls -}}
{{- if and (eq $redis.mode "external") (eq (empty $redis.external.url) (empty $redis.external.secret)) }}
{{- fail "redis.mode is external: give redis.external.url or redis.external.secret, one of them" }}
{{- end }}
{{- if and (eq $redis.mode "trial") (or $redis.external.url $redis.external.secret) }}
{{- fail "redis.external is given, and redis.mode is trial" }}
{{- end }}
{{- if and $tls.worker.secret (not $tls.router.secret) }}
{{- fail "tls.worker.secret needs tls.router.secret: workers ask routers for that certificate" }}
{{- end }}
{{- if and $tls.issuer.name (not (or $tls.router.secret $tls.worker.secret $tls.http.secret)) }}
{{- fail "tls.issuer.name is given, and no tls.*.secret says what is to be issued" }}
{{- end }}
{{- if and .Values.router.tunnels (not $tls.router.secret) }}
{{- fail "router.tunnels needs tls.router.secret: workers from outside take no router without TLS" }}
{{- end }}
{{- if and .Values.router.tunnels (ne .Values.auth.mode "keys") }}
{{- fail "router.tunnels needs auth.mode keys: workers from outside take a join token" }}
{{- end }}
{{- if and .Values.snapshots.url .Values.snapshots.claim }}
{{- fail "give snapshots.url or snapshots.claim, not both" }}
{{- end }}
{{- if and .Values.snapshots.keysSecret (not (or .Values.snapshots.url .Values.snapshots.claim)) }}
{{- fail "snapshots.keysSecret without snapshots.url or snapshots.claim: there is nothing to encrypt" }}
{{- end }}
{{- range $part := list "router" "worker" }}
{{- $scaled := index $.Values $part }}
{{- if and $scaled.autoscaling.enabled (lt (int $scaled.autoscaling.maxReplicas) (int $scaled.replicas)) }}
{{- fail (printf "%s.autoscaling.maxReplicas is below %s.replicas, which is the least" $part $part) }}
{{- end }}
{{- end }}
{{- if and .Values.worker.autoscaling.enabled (not .Values.worker.autoscaling.prometheus) }}
{{- fail "worker.autoscaling.enabled needs worker.autoscaling.prometheus, the server that KEDA asks" }}
{{- end }}
{{- end }}
