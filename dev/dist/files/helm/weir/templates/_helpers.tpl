{{- define "weir.fullname" -}}
{{- printf "%s-weir" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "weir.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "weir.secret" -}}
{{- .Values.existingSecret | default (include "weir.fullname" .) -}}
{{- end -}}

{{- define "weir.secretKeys" -}}
WEIR_CLAIM_SECRET WEIR_TOKEN_SECRET WEIR_ADMIN_TOKEN WEIR_PAYMENT_SECRET WEIR_LINK_SECRET WEIR_EVENTS_KEY_SHOP WEIR_ROOM_SECRET
{{- end -}}

{{/* Rolls the pods when a secret that they read changes. Without a cluster, as in `helm template`, it is constant. */}}
{{- define "weir.secretsChecksum" -}}
{{- $all := list }}
{{- range $name := list (include "weir.secret" .) .Values.redis.existingSecret .Values.redis.tls.caSecret .Values.origin.databaseUrlSecret }}
{{- if $name }}
{{- $secret := lookup "v1" "Secret" $.Release.Namespace $name }}
{{- $all = append $all (dict "name" $name "data" ($secret.data | default dict)) }}
{{- end }}
{{- end }}
{{- toJson $all | sha256sum -}}
{{- end -}}

{{- define "weir.redis.isBundled" -}}
{{- if not (or .Values.redis.host .Values.redis.nodes) }}true{{ end -}}
{{- end -}}

{{- define "weir.redis.topology" -}}
{{- ternary "cluster" "single" (gt (len .Values.redis.nodes) 0) -}}
{{- end -}}

{{/* The servers, as host:port, separated by commas. */}}
{{- define "weir.redis.servers" -}}
{{- $host := .Values.redis.host | default (printf "%s-redis" (include "weir.fullname" .)) -}}
{{- if .Values.redis.nodes }}{{ join "," .Values.redis.nodes }}{{ else }}{{ printf "%s:%d" $host (int .Values.redis.port) }}{{ end -}}
{{- end -}}

{{- define "weir.redis.url" -}}
{{- $scheme := ternary "rediss" "redis" .Values.redis.tls.enabled -}}
{{- $urls := list -}}
{{- range splitList "," (include "weir.redis.servers" .) }}{{ $urls = append $urls (printf "%s://%s" $scheme .) }}{{ end -}}
{{- join "," $urls -}}
{{- end -}}

{{- define "weir.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "weir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* Where a component's pods run. Takes the root and the name of the component. */}}
{{- define "weir.scheduling" -}}
{{- $root := index . 0 }}
{{- $of := index $root.Values (index . 1) }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "weir.spread" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
topologySpreadConstraints:
{{- with (index $root.Values $name).topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "weir.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $name }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "weir.scrape" -}}
{{- $root := index . 0 }}
{{- if $root.Values.metrics.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ index . 1 | quote }}
prometheus.io/path: {{ index . 2 }}
{{- end }}
{{- end -}}

{{/* Combinations that would render but not work. */}}
{{- define "weir.check" -}}
{{- $gateway := .Values.gateway }}
{{- $isPublic := or (ne $gateway.service.type "ClusterIP") $gateway.ingress.enabled $gateway.httpRoute.enabled }}
{{- if and $isPublic (not $gateway.jwt.issuer) (not $gateway.config) }}
{{- fail "the gateway would be public without authentication, and any client could act as any user: set gateway.jwt, or gateway.config with an authentication filter" }}
{{- end }}
{{- if and $gateway.config (or $gateway.jwt.issuer $gateway.routes) }}
{{- fail "gateway.config replaces the chart's Envoy configuration: remove gateway.jwt and gateway.routes, and write them into it" }}
{{- end }}
{{- if and $gateway.jwt.issuer (eq (empty $gateway.jwt.jwks) (empty $gateway.jwt.jwksUrl)) }}
{{- fail "gateway.jwt has no keys, or two sources of keys: set either jwks or jwksUrl" }}
{{- end }}
{{- if and $gateway.jwt.issuer (not $gateway.jwt.audiences) }}
{{- fail "gateway.jwt.audiences is empty, so tokens for other services would be accepted: name the audience of the shop" }}
{{- end }}
{{- range $gateway.routes }}
{{- if and .authenticated (not $gateway.jwt.issuer) }}
{{- fail (printf "gateway.routes: the route %q is authenticated, but there is no gateway.jwt" .prefix) }}
{{- end }}
{{- end }}
{{- if and $gateway.ingress.enabled (not $gateway.ingress.hosts) }}
{{- fail "gateway.ingress.hosts is empty: name the hosts of the shop and of its links" }}
{{- end }}
{{- if and $gateway.httpRoute.enabled (not $gateway.httpRoute.parentRefs) }}
{{- fail "gateway.httpRoute.parentRefs is empty: name the Gateway, such as [{ name: public, namespace: gateways }]" }}
{{- end }}
{{- if and (gt (int .Values.origin.replicas) 1) (not .Values.origin.databaseUrlSecret) }}
{{- fail "origin.replicas: more than one needs origin.databaseUrlSecret, because SQLite is a single file" }}
{{- end }}
{{- if and .Values.redis.host .Values.redis.nodes }}
{{- fail "redis.host and redis.nodes are both set: host is a single Redis, nodes are a Redis Cluster" }}
{{- end }}
{{- if and (include "weir.redis.isBundled" .) (or .Values.redis.existingSecret .Values.redis.username .Values.redis.tls.enabled) }}
{{- fail "the chart's own Redis has no password and no TLS: set redis.host or redis.nodes, or remove redis.existingSecret, redis.username and redis.tls" }}
{{- end }}
{{- if and .Values.redis.username (not .Values.redis.existingSecret) }}
{{- fail "redis.username needs redis.existingSecret with WEIR_REDIS_PASSWORD and WEIR_REDIS_URL" }}
{{- end }}
{{- if and .Values.redis.tls.enabled (not .Values.redis.tls.caSecret) }}
{{- fail "redis.tls.enabled needs redis.tls.caSecret: without CAs, any certificate would do" }}
{{- end }}
{{- if and .Values.redis.tls.enabled .Values.redis.nodes (not .Values.redis.tls.serverName) }}
{{- fail "redis.tls.serverName is empty: name a DNS name that all nodes of the Redis Cluster have in their certificates" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) }}
{{- fail "networkPolicy.metricsFrom is empty, so Prometheus could not reach the pods: name its namespace, or set networkPolicy.enabled=false" }}
{{- end }}
{{- end -}}
