{{- define "dpgateway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "dpgateway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "dpgateway.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "dpgateway.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dpgateway.selector" -}}
app.kubernetes.io/name: {{ include "dpgateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dpgateway.labels" -}}
{{ include "dpgateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* The values of each DaemonSet, by its component: "gateway", or the names of the profiles. */ -}}
{{- define "dpgateway.profiles" -}}
{{- $common := omit .Values "profiles" -}}
{{- if .Values.profiles -}}
{{- range $name, $own := .Values.profiles }}
{{ $name }}: {{ mergeOverwrite (deepCopy $common) (deepCopy $own) | toJson }}
{{- end }}
{{- else -}}
gateway: {{ $common | toJson }}
{{- end -}}
{{- end -}}

{{- /* Of a DaemonSet and its ConfigMap. Takes the root, and the component as "component". */ -}}
{{- define "dpgateway.profileName" -}}
{{- $full := include "dpgateway.fullname" .root -}}
{{- if eq .component "gateway" }}{{ $full }}{{ else }}{{ $full }}-{{ .component }}{{ end -}}
{{- end -}}

{{- /* Seconds. Without a surge the new gateway comes only when the old one is gone. Takes the profile's values. */ -}}
{{- define "dpgateway.linger" -}}
{{- $surge := dig "rollingUpdate" "maxSurge" 0 .updateStrategy | toString -}}
{{- if or (has $surge (list "0" "0%")) (ne (dig "type" "RollingUpdate" .updateStrategy) "RollingUpdate") }}0{{ else }}{{ int .lingerSeconds }}{{ end -}}
{{- end -}}

{{- define "dpgateway.serviceAccount" -}}
{{- default (ternary (include "dpgateway.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* Takes "image" and the root. */ -}}
{{- define "dpgateway.image" -}}
{{- with .image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.root.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Takes the profile's values. */ -}}
{{- define "dpgateway.config" -}}
# Made by the chart from `config` in its values.
{{- $own := dict }}
{{- with .runtimeSocket }}
{{- $own = dict "runtime" (dict "socket" .) }}
{{- end }}
{{ toYaml (mergeOverwrite $own (deepCopy .config)) }}
{{- end -}}

{{- /* Where a pod that belongs to a profile, but isn't its gateway, may run. Takes the profile's values. */ -}}
{{- define "dpgateway.small" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dpgateway.locked" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsUser: 0, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
{{- end -}}

{{- /* A pod that says whether a configuration is right. Takes "root", "values" and "configMap". */ -}}
{{- define "dpgateway.check" -}}
restartPolicy: Never
{{ include "dpgateway.small" .values }}
nodeSelector: {kubernetes.io/os: linux} # anywhere, because a profile may have no node yet
containers:
  - name: check
    image: {{ include "dpgateway.image" (dict "image" .values.image "root" .root) }}
    imagePullPolicy: {{ .values.image.pullPolicy }}
    args: [check, --config, /etc/dpgateway/config.yaml]
    securityContext: {{ include "dpgateway.locked" . }}
    volumeMounts:
      - {name: config, mountPath: /etc/dpgateway, readOnly: true}
volumes:
  - name: config
    configMap: {name: {{ .configMap }}}
{{- end -}}
