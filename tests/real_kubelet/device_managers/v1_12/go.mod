module device_manager

go 1.19

require (
	k8s.io/kubernetes v1.12.10
	k8s.io/api v0.0.0
	k8s.io/apiextensions-apiserver v0.0.0
	k8s.io/apimachinery v0.0.0
	k8s.io/apiserver v0.0.0
	k8s.io/client-go v0.0.0
	k8s.io/csi-api v0.0.0
	github.com/beorn7/perks v0.0.0-20180321164747-3a771d992973
	github.com/davecgh/go-spew v1.1.1
	github.com/docker/distribution v2.7.1+incompatible
	github.com/docker/spdystream v0.0.0-20160310174837-449fdfce4d96
	github.com/fsnotify/fsnotify v1.4.7
	github.com/ghodss/yaml v1.0.0
	github.com/gogo/protobuf v0.0.0-20170330071051-c0656edd0d9e
	github.com/golang/glog v0.0.0-20141105023935-44145f04b68c
	github.com/golang/groupcache v0.0.0-20160516000752-02826c3e7903
	github.com/golang/protobuf v1.1.0
	github.com/google/gofuzz v1.0.0
	github.com/googleapis/gnostic v0.0.0-20170729233727-0c5108395e2d
	github.com/hashicorp/golang-lru v0.5.0
	github.com/json-iterator/go v1.1.12
	github.com/matttproud/golang_protobuf_extensions v1.0.1
	github.com/opencontainers/go-digest v1.0.0-rc1
	github.com/prometheus/client_golang v0.8.1-0.20170531130054-e7e903064f5e
	github.com/prometheus/client_model v0.0.0-20150212101744-fa8ad6fec335
	github.com/prometheus/common v0.0.0-20170427095455-13ba4ddd0caa
	github.com/prometheus/procfs v0.0.0-20170519190837-65c1f6f8f0fc
	github.com/spf13/afero v1.1.2
	github.com/spf13/pflag v1.0.1
	golang.org/x/crypto v0.0.0-20180904163835-0709b304e793
	golang.org/x/exp v0.0.0
	golang.org/x/oauth2 v0.0.0-20180821212333-d2e6202438be
	github.com/gregjones/httpcache v0.0.0-20170728041850-787624de3eb7
	github.com/peterbourgon/diskv v2.0.1+incompatible
	github.com/google/btree v0.0.0-20160524151835-7d79101e329e
	github.com/modern-go/reflect2 v1.0.2
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd
	github.com/pkg/errors v0.8.0
	golang.org/x/net v0.0.0-20180724234803-3673e40ba225
	golang.org/x/sys v0.0.0-20171031081856-95c657629925
	golang.org/x/text v0.3.0
	golang.org/x/time v0.0.0-20161028155119-f51c12702a4d
	google.golang.org/genproto v0.0.0-20170731182057-09f6ed296fc6
	google.golang.org/grpc v1.7.5
	gopkg.in/inf.v0 v0.9.0
	gopkg.in/square/go-jose.v2 v2.2.2
	gopkg.in/yaml.v2 v2.2.1
	k8s.io/kube-openapi v0.0.0-20180731170545-e3762e86a74c
	k8s.io/utils v0.0.0-20180726175726-66066c83e385
)

replace (
	k8s.io/api => ./staging/api
	k8s.io/apiextensions-apiserver => ./staging/apiextensions-apiserver
	k8s.io/apimachinery => ./staging/apimachinery
	k8s.io/apiserver => ./staging/apiserver
	k8s.io/client-go => ./staging/client-go
	k8s.io/csi-api => ./staging/csi-api
	golang.org/x/exp => ../stubs/exp
)
