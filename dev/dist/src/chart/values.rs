//! Values that the chart accepts, and values that it refuses, for its checks.

/// Defaults, and each feature at least once.
pub const ACCEPTED: [(&str, &str); 7] = [
    ("defaults", ""),
    (
        "own services",
        "
existingSecret: own
redis: { host: redis.example }
origin: { storageClass: fast }
gateway: { routes: [{ prefix: /shop/, host: shop.default.svc, port: 80 }] }
",
    ),
    (
        "several origins",
        "
origin: { replicas: 2, databaseUrlSecret: database }
networkPolicy: { enabled: false }
metrics: { annotations: false }
",
    ),
    ("public", PUBLIC),
    (
        "Redis with TLS and a user",
        "
redis:
  host: redis.example
  existingSecret: redis
  username: weir-gateway
  tls: { enabled: true, caSecret: redis-ca }
",
    ),
    (
        "Redis Cluster",
        "
redis:
  nodes: [r0.example:6379, r1.example:6380]
  existingSecret: redis
  username: weir-gateway
  tls: { enabled: true, serverName: r.example, caSecret: redis-ca }
",
    ),
    (
        "own configuration",
        "
gateway:
  service: { type: NodePort }
  config: |
    static_resources:
      listeners:
        - name: gateway
          address: { socket_address: { address: 0.0.0.0, port_value: 10000 } }
          filter_chains:
            - filters:
                - name: envoy.filters.network.http_connection_manager
                  typed_config:
                    \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                    stat_prefix: gateway
                    route_config: { name: gateway }
                    http_filters:
                      - name: envoy.filters.http.router
                        typed_config:
                          \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
",
    ),
];

const PUBLIC: &str = "
imagePullSecrets: [{ name: registry }]
gateway:
  jwt:
    issuer: https://users.example
    audiences: [weir]
    jwksUrl: https://users.example:8443/jwks.json
    cookie: session
    forward: true
  routes:
    - { prefix: /shop/, host: shop.default.svc, port: 80 }
    - { prefix: /account/, host: accounts.example, port: 443, tls: true, authenticated: true, rewrite: /, timeout: 5s }
  tls: { secretName: shop-tls }
  trustedHops: 1
  eventOrigins: [\"https://shop.example\"]
  waitingRoom: { prefix: /queue/, perMinute: 60, activeMax: 100 }
  service: { type: LoadBalancer, port: 443, annotations: { a: b }, loadBalancerSourceRanges: [10.0.0.0/8] }
  ingress: { enabled: true, className: nginx, annotations: { a: b }, hosts: [shop.example, s.example], tlsSecretName: t }
  httpRoute: { enabled: true, parentRefs: [{ name: public }], hostnames: [shop.example] }
  autoscaling: { enabled: true }
  podAnnotations: { a: b }
  podLabels: { a: b }
  extraEnv: [{ name: A, value: b }]
  nodeSelector: { disk: ssd }
  tolerations: [{ key: k, operator: Exists }]
  affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } }
  priorityClassName: high
  topologySpreadConstraints: [{ maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule }]
  serviceAccountAnnotations: { a: b }
links: { hosts: [s.example, t.example] }
metrics: { serviceMonitor: { enabled: true, labels: { release: prometheus } } }
networkPolicy:
  metricsFrom: [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: monitoring } } }]
  adminFrom: [{ podSelector: {} }]
";

/// Values, and a part of the message with which Helm refuses them.
pub const REFUSED: [(&str, &str); 22] = [
    // A public gateway without authentication.
    (
        "gateway: { service: { type: LoadBalancer } }",
        "public without authentication",
    ),
    (
        "gateway: { service: { type: NodePort } }",
        "public without authentication",
    ),
    (
        "gateway: { ingress: { enabled: true, hosts: [a] } }",
        "public without authentication",
    ),
    (
        "gateway: { httpRoute: { enabled: true, parentRefs: [{ name: a }] } }",
        "public without authentication",
    ),
    // Authentication that would not work.
    (
        "gateway: { jwt: { issuer: a, audiences: [b] } }",
        "gateway.jwt has no keys",
    ),
    (
        "gateway: { jwt: { issuer: a, jwks: '{}' } }",
        "gateway.jwt.audiences is empty",
    ),
    (
        "gateway: { jwt: { issuer: a, audiences: [b], jwksUrl: 'http://users.example' } }",
        "/gateway/jwt/jwksUrl",
    ),
    (
        "gateway: { routes: [{ prefix: /a, host: a, port: 1, authenticated: true }] }",
        "there is no gateway.jwt",
    ),
    (
        "gateway: { config: a, routes: [{ prefix: /a, host: a, port: 1 }] }",
        "gateway.config replaces",
    ),
    // Redis.
    (
        "redis: { host: a, nodes: ['b:1'] }",
        "redis.host and redis.nodes are both set",
    ),
    (
        "redis: { existingSecret: a }",
        "the chart's own Redis has no password",
    ),
    (
        "redis: { host: a, username: b }",
        "redis.username needs redis.existingSecret",
    ),
    (
        "redis: { host: a, tls: { enabled: true } }",
        "redis.tls.enabled needs redis.tls.caSecret",
    ),
    (
        "redis: { nodes: ['a:1'], tls: { enabled: true, caSecret: b } }",
        "redis.tls.serverName is empty",
    ),
    // Others.
    ("origin: { replicas: 2 }", "needs origin.databaseUrlSecret"),
    (
        "metrics: { serviceMonitor: { enabled: true } }",
        "networkPolicy.metricsFrom is empty",
    ),
    // Misspelled or invalid.
    ("redis: { tsl: { enabled: true } }", "'tsl' not allowed"),
    ("redis: { password: a }", "'password' not allowed"),
    ("gateway: { replica: 9 }", "'replica' not allowed"),
    ("replicas: 9", "'replicas' not allowed"),
    ("gateway: { replicas: many }", "/gateway/replicas"),
    (
        "gateway: { service: { type: External } }",
        "/gateway/service/type",
    ),
];
