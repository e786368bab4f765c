{{/* (list $ TUNNEL): the pod of a router; with an entry of router.tunnels, of one at which tunnels end. */}}
{{- define "kakeya.routerPod" -}}
{{- $root := index . 0 -}}
{{- $tunnel := index . 1 -}}
{{- $router := $root.Values.router -}}
{{- $tls := $root.Values.tls -}}
metadata:
  labels:
    {{- include "kakeya.selector" (list $root "router") | nindent 4 }}
    {{- with $tunnel }}
    kakeya/tunnel: {{ .name }}
    {{- end }}
spec:
  {{- include "kakeya.pod" (list $root "router" $router) | nindent 2 }}
  containers:
    - name: router
      {{- include "kakeya.container" (list $root $root.Values.images.router $router) | nindent 6 }}
      args: [router]
      ports:
        - {name: grpc, containerPort: 50051}
        - {name: metrics, containerPort: 9464}
        {{- if $tunnel }}
        - {name: tunnel, containerPort: 50053}
        {{- end }}
      env:
        {{- include "kakeya.podVariables" . | nindent 8 }}
        {{- include "kakeya.variables" (merge (dict
              "KAKEYA_ROUTER_BIND" "0.0.0.0:50051"
              "KAKEYA_ROUTER_ADVERTISE" "$(POD_IP):50051"
              "KAKEYA_ROUTER_METRICS_BIND" "0.0.0.0:9464"
              "KAKEYA_ROUTER_AUTH" $root.Values.auth.mode
              "KAKEYA_ROUTER_INSECURE" (eq $root.Values.auth.mode "none")
              "KAKEYA_ROUTER_TUNNEL_BIND" (ternary "0.0.0.0:50053" "none" (not (empty $tunnel)))
              "KAKEYA_ROUTER_SHUTDOWN_GRACE_SECONDS" $router.shutdownGraceSeconds
            ) $router.variables) | trim | nindent 8 }}
        {{- with $tunnel }}
        {{- include "kakeya.variables" (dict "KAKEYA_ROUTER_TUNNEL_ADVERTISE" (printf "%s:50053" .address)) | trim | nindent 8 }}
        {{- end }}
        {{- if $tls.router.secret }}
        {{- include "kakeya.variables" (dict
              "KAKEYA_ROUTER_TLS_CERT" "/tls/own/tls.crt"
              "KAKEYA_ROUTER_TLS_KEY" "/tls/own/tls.key"
              "KAKEYA_ROUTER_TUNNEL_CA" "/tls/own/ca.crt") | trim | nindent 8 }}
        {{- end }}
        {{- if $tls.worker.secret }}
        {{- include "kakeya.variables" (dict "KAKEYA_ROUTER_WORKER_CA" "/tls/own/ca.crt") | trim | nindent 8 }}
        {{- end }}
        {{- if eq $root.Values.redis.mode "trial" }}
        {{- include "kakeya.variables" (dict
              "KAKEYA_ROUTER_REDIS" (printf "redis://%s-redis:6379/0" (include "kakeya.name" $root))) | trim | nindent 8 }}
        {{- else }}
        {{- include "kakeya.secretVariable" (list "KAKEYA_ROUTER_REDIS"
              ($root.Values.redis.external.secret | default (printf "%s-redis" (include "kakeya.name" $root))) "url") | nindent 8 }}
        {{- end }}
        {{- if eq $root.Values.auth.mode "keys" }}
        {{- include "kakeya.secretVariable" (list "KAKEYA_ROUTER_ADMIN_KEY" $root.Values.auth.secret "admin-key") | nindent 8 }}
        {{- include "kakeya.secretVariable" (list "KAKEYA_ROUTER_JOIN_TOKEN" $root.Values.auth.secret "join-token") | nindent 8 }}
        {{- end }}
      # Without Redis a router serves nobody. It is well nevertheless, and goes on by itself once Redis is back.
      readinessProbe:
        {{- include "kakeya.health" (list $tls.router.secret 50051) | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
      livenessProbe:
        tcpSocket: {port: grpc}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      # Until then new calls may still come in, which SIGTERM would have refused.
      lifecycle:
        preStop:
          sleep: {seconds: {{ int $router.preStopSeconds }}}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if $tls.router.secret }}
        - {name: tls, mountPath: /tls/own, readOnly: true}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- with $tls.router.secret }}
    {{- include "kakeya.secretVolume" (list "tls" .) | nindent 4 }}
    {{- end }}
{{- end }}
