{{- /* What gateways need for DRA and for events: the API server, and what they tell it. */ -}}

{{- /* The front of a profile's resources that don't say one. Takes the profile's values. */ -}}
{{- define "dpgateway.usualFront" -}}
{{- dig "defaults" "front" (ternary "auto" "deviceplugin" .dra.enabled) .config -}}
{{- end -}}

{{- /* The names of a profile's resources with one of these fronts, in a list. Takes the profile's "values", and the
"fronts". */ -}}
{{- define "dpgateway.withFront" -}}
{{- $usual := include "dpgateway.usualFront" .values -}}
{{- $names := list -}}
{{- range .values.config.resources -}}
{{- if has (default $usual .front) $.fronts }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{- /* Fails if the values of DRA, of events and of CDI specs don't fit together, or the cluster. */ -}}
{{- define "dpgateway.checkDra" -}}
{{- $dra := .Values.dra -}}
{{- if and $dra.enabled (not $dra.driver) -}}
{{- fail "dra.driver: found nothing, expected the name of the DRA driver, such as dra.example.com; the kubelet, slices, DeviceClasses and claims name it, so choose it once" -}}
{{- end -}}
{{- if and $dra.enabled (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "dra.enabled: found Kubernetes %s, expected 1.36 at least: older kubelets start pods of an extended resource without their devices by DRA" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (or $dra.enabled .Values.events.enabled) (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: found nothing, expected the account of the gateways alone, because dra and events give rights to it, and all pods of the namespace may have the default one" -}}
{{- end -}}
{{- range $component, $values := include "dpgateway.profiles" . | fromYaml -}}
{{- $names := include "dpgateway.withFront" (dict "values" $values "fronts" (list "dra" "auto")) | fromJsonArray -}}
{{- $always := include "dpgateway.withFront" (dict "values" $values "fronts" (list "dra")) | fromJsonArray -}}
{{- $driver := dig "dra" "driver" "" $values.config | default "" -}}
{{- if not $dra.enabled -}}
{{- if $names -}}
{{- fail (printf "config.resources of %s: %s has front: %s, expected dra.enabled: true with dra.driver, because a gateway needs rights and directories for it" $component (first $names) (ternary "dra" "auto" (has (first $names) $always))) -}}
{{- end -}}
{{- if $driver -}}
{{- fail (printf "config.dra.driver of %s: found %s, expected dra.enabled: true with dra.driver, because a gateway needs rights and directories for it" $component $driver) -}}
{{- end -}}
{{- else -}}
{{- if not (has $driver (list "" $dra.driver)) -}}
{{- fail (printf "config.dra.driver of %s: found %s, expected %s, as dra.driver is: all gateways of a cluster are one driver" $component $driver $dra.driver) -}}
{{- end -}}
{{- $root := dig "kubelet" "root_dir" "" $values.config | default $values.kubeletDir -}}
{{- if ne $root $values.kubeletDir -}}
{{- fail (printf "config.kubelet.root_dir of %s: found %s, expected %s, as kubeletDir is: the gateway sees no other directory" $component $root $values.kubeletDir) -}}
{{- end -}}
{{- /* The kubelet dials KUBELET/plugins/DRIVER/dra-12345678.sock, and Linux has 107 bytes for it. */ -}}
{{- $length := add (len $values.kubeletDir) (len $dra.driver) 27 -}}
{{- if gt $length 107 -}}
{{- fail (printf "dra.driver: the gateway's socket %s/plugins/%s/dra-12345678.sock of %s has %d bytes, expected at most 107, the limit of Linux: take a shorter name" $values.kubeletDir $dra.driver $component $length) -}}
{{- end -}}
{{- end -}}
{{- if and (dig "cluster" "events" false $values.config) (not $.Values.events.enabled) -}}
{{- fail (printf "config.cluster.events of %s: found true, expected events.enabled: true, because a gateway needs rights for it" $component) -}}
{{- end -}}
{{- if not (include "dpgateway.cdiSpecs" $values) -}}
{{- $usual := dig "defaults" "cdi" "auto" $values.config -}}
{{- range $values.config.resources -}}
{{- if eq (default $usual .cdi) "always" -}}
{{- fail (printf "config.resources of %s: %s has cdi: always, expected cdiSpecs: true, because the runtime sees no spec that a gateway writes within its container" $component .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $dra.enabled $always -}}
{{- include "dpgateway.checkNodes" (dict "component" $component "values" $values "name" (first $always)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Fails if claims have devices of the driver that is installed: without a gateway of that driver their pods can't end.
`helm template` sees none. */ -}}
{{- define "dpgateway.checkClaims" -}}
{{- $drivers := list -}}
{{- range $component, $_ := include "dpgateway.profiles" . | fromYaml -}}
{{- $installed := lookup "v1" "ConfigMap" $.Release.Namespace (include "dpgateway.profileName" (dict "root" $ "component" $component)) -}}
{{- $drivers = append $drivers (dig "dra" "driver" "" (dig "data" "config.yaml" "" $installed | fromYaml)) -}}
{{- end -}}
{{- $drivers = without $drivers "" nil -}}
{{- $claims := list -}}
{{- if and $drivers (.Capabilities.APIVersions.Has "resource.k8s.io/v1") -}}
{{- range $claim := (lookup "resource.k8s.io/v1" "ResourceClaim" "" "").items -}}
{{- range dig "status" "allocation" "devices" "results" list $claim -}}
{{- if has .driver $drivers }}{{ $claims = append $claims (printf "%s/%s" $claim.metadata.namespace $claim.metadata.name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $claims -}}
{{- fail (printf "%s: found claims with devices by DRA: %s; expected none, because without the gateways their pods stay Terminating: set dra.withdraw: true with dra.enabled: true first, and end these pods" (ternary "cleanUp" "dra.enabled: false" .Values.cleanUp) (uniq $claims | join ", ")) -}}
{{- end -}}
{{- end -}}

{{- /* Fails if a gateway would have to offer a resource by DRA, and only so, on a kubelet before 1.36, where it offers
nothing, or to a containerd that drops the names of CDI devices. `helm template` sees no nodes. */ -}}
{{- define "dpgateway.checkNodes" -}}
{{- range (lookup "v1" "Node" "" "").items -}}
{{- $labels := .metadata.labels -}}
{{- $selected := true -}}
{{- range $label, $value := $.values.nodeSelector -}}
{{- if not (and (hasKey $labels $label) (eq (get $labels $label) $value)) }}{{ $selected = false }}{{ end -}}
{{- end -}}
{{- $terms := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list (dict)) (default dict $.values.affinity) -}}
{{- $fits := false -}}
{{- range $terms -}}
{{- $all := true -}}
{{- range .matchExpressions -}}
{{- $in := has (get $labels .key) (default list .values) -}}
{{- if or (and (eq .operator "In") (not $in)) (and (eq .operator "NotIn") $in) (and (eq .operator "Exists") (not (hasKey $labels .key))) (and (eq .operator "DoesNotExist") (hasKey $labels .key)) }}{{ $all = false }}{{ end -}}
{{- end -}}
{{- $fits = or $fits $all -}}
{{- end -}}
{{- $obstacle := include "dpgateway.obstacle" .status.nodeInfo -}}
{{- if and $selected $fits $obstacle -}}
{{- fail (printf "%s of %s has front: dra, and node %s has %s, because an older one starts pods without the device; take front: auto, or give such nodes a profile with front: deviceplugin" $.name $.component .metadata.name $obstacle) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What keeps a node from DRA, as far as its Node tells; empty if nothing does. Takes its nodeInfo. */ -}}
{{- define "dpgateway.obstacle" -}}
{{- if lt (regexReplaceAll "^v?1[.]([0-9]+).*$" .kubeletVersion "${1}" | atoi) 36 -}}
kubelet {{ .kubeletVersion }}: expected 1.36 at least
{{- else if regexMatch "^containerd://1[.]([0-6][.]|7[.][01]([^0-9]|$))" .containerRuntimeVersion -}}
{{ .containerRuntimeVersion }}: expected containerd 1.7.2 at least
{{- end -}}
{{- end -}}

{{- /* How many nodes of the cluster have which kubelet and runtime, and what keeps these from DRA: a list of lines. */ -}}
{{- define "dpgateway.kindsOfNodes" -}}
{{- $count := dict -}}
{{- $front := dict -}}
{{- range (lookup "v1" "Node" "" "").items -}}
{{- $kind := printf "kubelet %s, %s" .status.nodeInfo.kubeletVersion .status.nodeInfo.containerRuntimeVersion -}}
{{- $_ := set $count $kind (add1 (default 0 (get $count $kind))) -}}
{{- $_ := set $front $kind (ternary "DRA" "the device plugin" (empty (include "dpgateway.obstacle" .status.nodeInfo))) -}}
{{- end -}}
{{- range $kind := keys $count | sortAlpha }}
  {{ $kind }} ({{ get $count $kind }}): {{ get $front $kind }}
{{- end -}}
{{- end -}}

{{- /* Whether a profile's gateways ask the API server. Takes the profile's values; empty for no. */ -}}
{{- define "dpgateway.asksCluster" -}}
{{- if or .dra.enabled .events.enabled }}true{{ end -}}
{{- end -}}

{{- /* Of objects that belong to no namespace. */ -}}
{{- define "dpgateway.clusterName" -}}
{{ .Release.Namespace }}-{{ include "dpgateway.fullname" . }}
{{- end -}}

{{- define "dpgateway.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "dpgateway.serviceAccount" . }}
{{- end -}}

{{- /* A text as a DNS label: dra/slices/names.py, label(). Takes the text. */ -}}
{{- define "dpgateway.label" -}}
{{- if and (le (len .) 63) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .) -}}
{{ . }}
{{- else -}}
{{- printf "%s-%s" (regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trimAll "-" | trunc 54 | trimAll "-") (sha256sum . | trunc 8) -}}
{{- end -}}
{{- end -}}

{{- /* The name of a resource's DeviceClass: example.com/thing has example.com.thing. Takes the resource's name. */ -}}
{{- define "dpgateway.deviceClass" -}}
{{- $name := replace "/" "." . -}}
{{- if and (le (len $name) 253) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" $name) -}}
{{ $name }}
{{- else -}}
{{ include "dpgateway.label" $name }}
{{- end -}}
{{- end -}}

{{- /* A role of the whole cluster, and its binding to the gateways. Takes the "root", the "name" and the "rules". */ -}}
{{- define "dpgateway.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- include "dpgateway.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "dpgateway.labels" .root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "dpgateway.serviceAccount" .root }}, namespace: {{ .root.Release.Namespace }}}
{{- end -}}
