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

{{- /* Values that a chart before DRA had not, which `helm upgrade --reuse-values` leaves out. */ -}}
{{- define "dpgateway.complete" -}}
{{- $dra := dict "enabled" false "driver" "" "withdraw" false "deviceClasses" true "rights" (dict "listClaims" true) -}}
{{- $_ := set .Values "dra" (mergeOverwrite $dra (default dict .Values.dra)) -}}
{{- $_ := set .Values "events" (default (dict "enabled" false) .Values.events) -}}
{{- end -}}

{{- /* The values of each DaemonSet, by its component: "gateway", and the names of the profiles. */ -}}
{{- define "dpgateway.profiles" -}}
{{- include "dpgateway.complete" . -}}
{{- $common := omit .Values "profiles" -}}
{{- range $name, $own := .Values.profiles }}
{{ $name }}: {{ mergeOverwrite (deepCopy $common) (deepCopy $own) | toJson }}
{{- end }}
{{- if or .Values.otherNodes (not .Values.profiles) }}
gateway: {{ set (deepCopy $common) "affinity" (include "dpgateway.otherNodes" . | fromYaml) | toJson }}
{{- end }}
{{- end -}}

{{- /* The affinity of the gateways on nodes that no profile selects. A profile selects nodes with all of its labels, so
each term names, for each profile, one label that the node hasn't. */ -}}
{{- define "dpgateway.otherNodes" -}}
{{- $terms := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list (dict)) .Values.affinity -}}
{{- range $name, $own := .Values.profiles -}}
{{- $labels := dict -}}
{{- range $label, $value := $own.nodeSelector -}}
{{- if not (and (hasKey $.Values.nodeSelector $label) (eq (get $.Values.nodeSelector $label) $value)) -}}
{{- $_ := set $labels $label $value -}}
{{- end -}}
{{- end -}}
{{- $affinity := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "" (default dict $own.affinity) -}}
{{- if or $affinity (not $labels) -}}
{{- fail (printf "profiles.%s: found %s, which doesn't tell its nodes from others; expected labels in its nodeSelector alone, or otherNodes: false" $name (ternary "a node affinity" "no label of its own in nodeSelector" (not (empty $affinity)))) -}}
{{- end -}}
{{- $more := list -}}
{{- range $term := $terms -}}
{{- range $label, $value := $labels -}}
{{- $without := dict "key" $label "operator" "NotIn" "values" (list $value) -}}
{{- $more = append $more (set (deepCopy $term) "matchExpressions" (append (default list $term.matchExpressions) $without)) -}}
{{- end -}}
{{- end -}}
{{- $terms = $more -}}
{{- end -}}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- if .Values.profiles -}}
{{- mergeOverwrite (deepCopy .Values.affinity) (dict "nodeAffinity" $required) | toJson -}}
{{- else -}}
{{- .Values.affinity | toJson -}}
{{- end -}}
{{- end -}}

{{- /* The profiles of which a node may match two: their selectors have another value of no label, and their affinity is
the same. */ -}}
{{- define "dpgateway.overlaps" -}}
{{- $profiles := omit (include "dpgateway.profiles" . | fromYaml) "gateway" -}}
{{- range $one := keys $profiles | sortAlpha -}}
{{- range $other := keys $profiles | sortAlpha -}}
{{- $affinities := list (get $profiles $one).affinity (get $profiles $other).affinity -}}
{{- $differ := or (ge $one $other) (ne (first $affinities | toJson) (last $affinities | toJson)) -}}
{{- range $label, $value := (get $profiles $one).nodeSelector -}}
{{- if ne $value (default $value (get (default dict (get $profiles $other).nodeSelector) $label)) }}{{ $differ = true }}{{ end -}}
{{- end -}}
{{- if not $differ }}
A node may match both profiles, {{ $one }} and {{ $other }}. It would have two gateways, of which the later one takes the resources over:
give them different values of one label in nodeSelector, or never label a node for both.
{{- end -}}
{{- end -}}
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
{{- $_ := set $own "runtime" (dict "socket" .) }}
{{- end }}
{{- if .dra.enabled }}
{{- $_ := set $own "dra" (dict "driver" .dra.driver "withdraw" .dra.withdraw) }}
{{- $_ := set $own "defaults" (dict "front" "auto") }}
{{- if ne .kubeletDir "/var/lib/kubelet" }}
{{- $_ := set $own "kubelet" (dict "root_dir" .kubeletDir) }}
{{- end }}
{{- end }}
{{- if .events.enabled }}
{{- $_ := set $own "cluster" (dict "events" true) }}
{{- end }}
{{ toYaml (mergeOverwrite $own (deepCopy .config)) }}
{{- end -}}

{{- /* Where a pod that belongs to a profile, but isn't its gateway, may run. Takes the profile's values. */ -}}
{{- define "dpgateway.small" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
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

{{- /* A pod that says what is wrong with the configurations of all profiles. Takes the "root", and the "volume" with them. */ -}}
{{- define "dpgateway.check" -}}
{{- $profiles := include "dpgateway.profiles" .root | fromYaml -}}
{{- $secrets := list -}}
{{- $tolerations := list -}}
{{- range $profiles -}}
{{- $secrets = concat $secrets .imagePullSecrets | uniq -}}
{{- $tolerations = concat $tolerations .tolerations | uniq -}}
{{- end -}}
restartPolicy: Never
activeDeadlineSeconds: {{ .root.Values.checkSeconds }} # an image that can't be pulled would be tried for ever
priorityClassName: {{ .root.Values.priorityClassName }}
{{- if not .root.Values.serviceAccount.create }}
serviceAccountName: {{ include "dpgateway.serviceAccount" .root }}
{{- end }}
{{ include "dpgateway.small" (dict "imagePullSecrets" $secrets "tolerations" $tolerations) }}
nodeSelector: {kubernetes.io/os: linux} # anywhere, because a profile may have no node yet
containers:
{{- range $component, $values := $profiles }}
  - name: {{ $component }}
    image: {{ include "dpgateway.image" (dict "image" $values.image "root" $.root) }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: [check, --all-nodes, --config, /etc/dpgateway/{{ $component }}.yaml]
    resources:
      {{- toYaml $values.resources | nindent 6 }}
    securityContext: {{ include "dpgateway.locked" $ }}
    volumeMounts:
      - {name: configurations, mountPath: /etc/dpgateway, readOnly: true}
{{- end }}
volumes:
  - name: configurations
    {{- .volume | nindent 4 }}
  # No container has it. But what refuses the gateways' pods, such as Pod Security, refuses this one before anything
  # changes, and helm says why.
  - name: directories-of-the-host
    hostPath: {path: /dev}
{{- end -}}

{{- /* Whether the gateway writes CDI specs: all that a container gets by DRA is in one. Takes the profile's values; empty
for no. */ -}}
{{- define "dpgateway.cdiSpecs" -}}
{{- if or .cdiSpecs .dra.enabled }}true{{ end -}}
{{- end -}}

{{- /* Where the gateway looks for CDI specs, if it may. Takes the profile's values. */ -}}
{{- define "dpgateway.cdiDirectories" -}}
{{- if or .cdiDirectories (include "dpgateway.cdiSpecs" .) -}}
{{- dig "runtime" "cdi_dirs" (list "/etc/cdi" "/var/run/cdi") .config | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- /* What a gateway sees of its node. Takes the profile's values. */ -}}
{{- define "dpgateway.volumeMounts" -}}
- {name: config, mountPath: /etc/dpgateway, readOnly: true}
- {name: device-plugins, mountPath: /var/lib/kubelet/device-plugins}
- {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
{{- if .podsDirectory }}
# What the kubelet unmounts must go here, too, or a volume would stay busy.
- {name: pods, mountPath: /var/lib/kubelet/pods, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- if .podCgroups }}
- {name: cgroups, mountPath: /node/sys/fs/cgroup, readOnly: true}
{{- end }}
- {name: state, mountPath: /var/lib/dpgateway}
- {name: dev, mountPath: /dev, readOnly: true, mountPropagation: HostToContainer}
- {name: udev, mountPath: /run/udev, readOnly: true}
{{- $directories := include "dpgateway.cdiDirectories" . | fromJsonArray }}
{{- range $index, $directory := $directories }}
- {name: cdi-{{ $index }}, mountPath: {{ $directory }}, readOnly: {{ or (not (include "dpgateway.cdiSpecs" $)) (ne $directory (last $directories)) }}}
{{- end }}
{{- with .runtimeSocket }}
# Its directory, because a runtime that starts again makes another socket. It is seen under the same path.
- {name: runtime, mountPath: {{ dir . }}, readOnly: true}
{{- end }}
{{- if .dra.enabled }}
# The kubelet dials the sockets there by their paths, which are the node's.
- {name: plugins, mountPath: {{ .kubeletDir }}/plugins/{{ .dra.driver }}}
- {name: plugins-registry, mountPath: {{ .kubeletDir }}/plugins_registry}
{{- if ne .kubeletDir "/var/lib/kubelet" }}
- {name: pod-resources, mountPath: {{ .kubeletDir }}/pod-resources, readOnly: true}
{{- if .podsDirectory }}
- {name: pods, mountPath: {{ .kubeletDir }}/pods, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}
{{- end }}
{{- if include "dpgateway.asksCluster" . }}
- {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}
{{- with .volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The volumes of these mounts. Takes the profile's "values", and the "configMap". */ -}}
{{- define "dpgateway.volumes" -}}
- name: config
  configMap: {name: {{ .configMap }}}
- name: device-plugins
  hostPath: {path: /var/lib/kubelet/device-plugins, type: Directory}
- name: pod-resources
  hostPath: {path: {{ .values.kubeletDir }}/pod-resources, type: DirectoryOrCreate}
{{- if .values.podsDirectory }}
- name: pods
  hostPath: {path: {{ .values.kubeletDir }}/pods, type: Directory}
{{- end }}
{{- if .values.podCgroups }}
- name: cgroups
  hostPath: {path: /sys/fs/cgroup, type: Directory}
{{- end }}
- name: state
  hostPath: {path: /var/lib/dpgateway, type: DirectoryOrCreate}
- name: dev
  hostPath: {path: /dev, type: Directory}
- name: udev
  hostPath: {path: /run/udev, type: DirectoryOrCreate}
{{- range $index, $directory := include "dpgateway.cdiDirectories" .values | fromJsonArray }}
- name: cdi-{{ $index }}
  hostPath: {path: {{ $directory }}, type: DirectoryOrCreate}
{{- end }}
{{- with .values.runtimeSocket }}
- name: runtime
  hostPath: {path: {{ dir . }}, type: Directory}
{{- end }}
{{- if .values.dra.enabled }}
- name: plugins
  hostPath: {path: {{ .values.kubeletDir }}/plugins/{{ .values.dra.driver }}, type: DirectoryOrCreate}
- name: plugins-registry
  hostPath: {path: {{ .values.kubeletDir }}/plugins_registry, type: DirectoryOrCreate}
{{- end }}
{{- if include "dpgateway.asksCluster" .values }}
- name: account # of this pod on this node, as the policy for slices expects
  projected:
    defaultMode: 256 # 0400
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with .values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
