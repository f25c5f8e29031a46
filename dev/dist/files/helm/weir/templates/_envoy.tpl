{{/* Parts of the Envoy configuration that depend on values. The rest is files/envoy.yaml, made from envoy/all.yaml. */}}

{{- define "weir.envoy" -}}
{{- if .Values.gateway.config }}{{ .Values.gateway.config }}{{ else }}{{ tpl (.Files.Get "files/envoy.yaml") . }}{{ end -}}
{{- end -}}

{{/* Added to each configuration. /ready fails while the gateway drains. */}}
{{- define "weir.envoy.operations" -}}
admin:
  address:
    socket_address: { address: 127.0.0.1, port_value: 9901 }
static_resources:
  listeners:
    - name: metrics
      address:
        socket_address: { address: 0.0.0.0, port_value: 9902 }
      # A full gateway stays ready.
      ignore_global_conn_limit: true
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: metrics
                normalize_path: true
                route_config:
                  virtual_hosts:
                    - name: metrics
                      domains: ["*"]
                      routes:
                        {{- range $path := list "/stats/prometheus" "/ready" }}
                        - match:
                            path: {{ $path }}
                            headers:
                              - name: ":method"
                                string_match: { exact: GET }
                          route: { cluster: weir_admin }
                        {{- end }}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: weir_admin
      type: STATIC
      load_assignment:
        cluster_name: weir_admin
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address:
                    socket_address: { address: 127.0.0.1, port_value: 9901 }
{{- end -}}

{{- define "weir.envoy.downstreamTls" -}}
{{- if .Values.gateway.tls.secretName -}}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
    common_tls_context:
      alpn_protocols: [h2, http/1.1]
      tls_params: { tls_minimum_protocol_version: TLSv1_2 }
      tls_certificates:
        - certificate_chain: { filename: /weir/tls/tls.crt }
          private_key: { filename: /weir/tls/tls.key }
          watched_directory: { path: /weir/tls }
{{- end -}}
{{- end -}}

{{/* TLS to a server whose certificate has this name. Takes the name and the file with CAs. */}}
{{- define "weir.envoy.upstreamTls" -}}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    sni: {{ index . 0 | quote }}
    common_tls_context:
      validation_context:
        trusted_ca: { filename: {{ index . 1 }} }
        match_typed_subject_alt_names:
          - san_type: DNS
            matcher: { exact: {{ index . 0 | quote }} }
{{- end -}}

{{/* As in envoy/snippets/jwt.yaml. A request without a valid token loses its x-user-id. */}}
{{- define "weir.envoy.jwt" -}}
{{- with .Values.gateway.jwt }}
{{- if .issuer -}}
- name: envoy.filters.http.jwt_authn
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
    providers:
      users:
        issuer: {{ .issuer | quote }}
        audiences: {{ toJson .audiences }}
        forward: {{ .forward }}
        clock_skew_seconds: 5
        claim_to_headers:
          - { header_name: x-user-id, claim_name: {{ .userClaim | quote }} }
        {{- with .cookie }}
        from_headers: [{ name: Authorization, value_prefix: "Bearer " }]
        from_cookies: [{{ . | quote }}]
        {{- end }}
        {{- if .jwks }}
        local_jwks: { inline_string: {{ .jwks | quote }} }
        {{- else }}
        remote_jwks:
          http_uri: { uri: {{ .jwksUrl | quote }}, cluster: weir_jwks, timeout: 5s }
          cache_duration: 300s
          async_fetch: {}
        {{- end }}
    bypass_cors_preflight: true
    rules:
      {{- $optional := `{ requires_any: { requirements: [{ provider_name: users }, { allow_missing_or_failed: {} }] } }` }}
      {{- $hosts := list }}
      {{- range $.Values.links.hosts }}{{ $hosts = append $hosts (regexQuoteMeta .) }}{{ end }}
      - match:
          prefix: /
          headers:
            - name: ":authority"
              string_match: { safe_regex: { regex: {{ printf "(?i)(%s)(:[0-9]+)?" (join "|" $hosts) | quote }} } }
        requires: {{ $optional }}
      - match: { safe_regex: { regex: "/sales/[^/]+/draw(/entries)?" } }
        requires: {{ $optional }}
      - match:
          safe_regex: { regex: "/sales/[^/]+" }
          headers:
            - name: ":method"
              string_match: { exact: GET }
        requires: {{ $optional }}
      {{- range list "/sales" "/orders" "/history" "/fitment/garage" }}
      - match: { path_separated_prefix: {{ . }} }
        requires: { provider_name: users }
      {{- end }}
      {{- range $.Values.gateway.routes }}
      - match: { prefix: {{ .prefix | quote }} }
        requires: {{ if .authenticated }}{ provider_name: users }{{ else }}{{ $optional }}{{ end }}
      {{- end }}
      - match: { prefix: / }
        requires: {{ $optional }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.envoy.routes" -}}
{{- range $index, $route := .Values.gateway.routes }}
- name: service-{{ $index }}
  match: { prefix: {{ $route.prefix | quote }} }
  route:
    cluster: service_{{ $index }}
    timeout: {{ $route.timeout | default "15s" }}
    {{- with $route.rewrite }}
    prefix_rewrite: {{ . | quote }}
    {{- end }}
{{- else }}
# Behind the waiting room. Your shop takes its place: gateway.routes.
- name: shop
  match: { prefix: /shop/ }
  direct_response:
    status: 200
    body: { inline_string: "You are in the shop.\n" }
{{- end }}
{{- end -}}

{{- define "weir.envoy.clusters" -}}
{{- $systemCas := "/etc/ssl/certs/ca-certificates.crt" }}
{{- range $index, $route := .Values.gateway.routes }}
- name: service_{{ $index }}
  type: STRICT_DNS
  connect_timeout: 1s
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      common_http_protocol_options: { idle_timeout: 60s }
      explicit_http_config: { http_protocol_options: {} }
  {{- if $route.tls }}
  {{- include "weir.envoy.upstreamTls" (list $route.host $systemCas) | nindent 2 }}
  {{- end }}
  load_assignment:
    cluster_name: service_{{ $index }}
    endpoints:
      - lb_endpoints:
          - endpoint:
              address:
                socket_address: { address: {{ $route.host | quote }}, port_value: {{ $route.port }} }
{{- end }}
{{- with .Values.gateway.jwt }}
{{- if and .issuer .jwksUrl }}
{{- $address := (urlParse .jwksUrl).host }}
{{- $host := regexReplaceAll ":[0-9]+$" $address "" }}
- name: weir_jwks
  type: LOGICAL_DNS
  connect_timeout: 2s
  {{- include "weir.envoy.upstreamTls" (list $host $systemCas) | nindent 2 }}
  load_assignment:
    cluster_name: weir_jwks
    endpoints:
      - lb_endpoints:
          - endpoint:
              address:
                socket_address: { address: {{ $host | quote }}, port_value: {{ trimPrefix $host $address | trimPrefix ":" | default "443" }} }
{{- end }}
{{- end }}
{{- end -}}

{{/* The bridge's settings, as in envoy/all.yaml and snippets/redis-tls.yaml. On a Redis Cluster, redis_proxy logs in. */}}
{{- define "weir.envoy.bridge" -}}
{{- $redis := .Values.redis }}
{{- $settings := dict "request_bytes_max" 1048576 "replies_bytes_max" 16777216 }}
{{- if and $redis.existingSecret (not $redis.nodes) }}
{{- $auth := dict "password" (dict "env" "WEIR_REDIS_PASSWORD") }}
{{- with $redis.username }}{{ $_ := set $auth "username" . }}{{ end }}
{{- $_ := set $settings "auth" $auth }}
{{- end }}
{{- toJson $settings -}}
{{- end -}}

{{/* Behind the bridge: as in envoy/all.yaml and snippets/redis-cluster.yaml. */}}
{{- define "weir.envoy.redisProxy" -}}
{{- if .Values.redis.nodes -}}
- name: envoy.filters.network.redis_proxy
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
    stat_prefix: weir_redis
    settings:
      op_timeout: 1s
      enable_hashtagging: true
      enable_redirection: true
      max_buffer_size_before_flush: 0
    prefix_routes:
      catch_all_route: { cluster: weir_redis_upstream }
{{- else -}}
- name: envoy.filters.network.tcp_proxy
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
    stat_prefix: weir_redis
    cluster: weir_redis_upstream
    idle_timeout: 0s
{{- end -}}
{{- end -}}

{{- define "weir.envoy.redisCluster" -}}
{{- $redis := .Values.redis -}}
- name: weir_redis_upstream
  connect_timeout: 0.2s
  {{- if $redis.nodes }}
  lb_policy: CLUSTER_PROVIDED
  cluster_type:
    name: envoy.clusters.redis
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.clusters.redis.v3.RedisClusterConfig
      cluster_refresh_rate: 5s
      cluster_refresh_timeout: 1s
      redirect_refresh_interval: 1s
      redirect_refresh_threshold: 1
      failure_refresh_threshold: 1
  {{- if $redis.existingSecret }}
  typed_extension_protocol_options:
    envoy.filters.network.redis_proxy:
      "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions
      {{- with $redis.username }}
      auth_username: { inline_string: {{ . | quote }} }
      {{- end }}
      auth_password: { environment_variable: WEIR_REDIS_PASSWORD }
  {{- end }}
  {{- else }}
  type: LOGICAL_DNS
  upstream_connection_options:
    tcp_keepalive: { keepalive_time: 15, keepalive_interval: 5, keepalive_probes: 3 }
  circuit_breakers:
    thresholds:
      - max_connections: 1024
        max_pending_requests: 1024
  {{- end }}
  {{- if $redis.tls.enabled }}
  {{- include "weir.envoy.upstreamTls" (list ($redis.tls.serverName | default $redis.host) "/weir/redis/ca.crt") | nindent 2 }}
  {{- end }}
  load_assignment:
    cluster_name: weir_redis_upstream
    endpoints:
      - lb_endpoints:
          {{- range splitList "," (include "weir.redis.servers" .) }}
          {{- $port := regexFind "[0-9]+$" . }}
          - endpoint:
              address:
                socket_address: { address: {{ trimSuffix (printf ":%s" $port) . | quote }}, port_value: {{ $port }} }
          {{- end }}
{{- end -}}
