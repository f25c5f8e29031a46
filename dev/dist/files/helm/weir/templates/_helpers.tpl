{{- define "weir.fullname" -}}
{{- printf "%s-weir" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "weir.labels" -}}
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

{{- define "weir.redisHost" -}}
{{- .Values.redis.host | default (printf "%s-redis" (include "weir.fullname" .)) -}}
{{- end -}}
