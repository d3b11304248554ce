package main

import (
	"context"
	"flag"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	_ "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
)

const release = "1.37"

var background = context.Background()

func logFlags() {
	klog.InitFlags(nil)
	flag.Set("logtostderr", "true")
}

type manager struct {
	dm       *devicemanager.ManagerImpl
	handlers lifecycle.PodAdmitHandlers
}

func newManager() (deviceManager, error) {
	if err := utilfeature.DefaultMutableFeatureGate.Set(settings.gates); err != nil {
		return nil, err
	}
	topology, err := topologymanager.NewManager(klog.Background(), machine(), settings.policy, settings.scope, nil)
	if err != nil {
		return nil, err
	}
	dm, err := devicemanager.NewManagerImpl(klog.Background(), machine(), topology)
	if err != nil {
		return nil, err
	}
	topology.AddHintProvider(klog.Background(), dm)
	m := &manager{dm: dm}
	predicate := lifecycle.NewPredicateAdmitHandler(m.node, everyReason{}, dm.UpdatePluginResources)
	m.handlers = lifecycle.PodAdmitHandlers{topology, predicate}
	return m, nil
}

// machine has as many NUMA nodes as the settings say.
func machine() []cadvisorapi.Node {
	nodes := make([]cadvisorapi.Node, settings.numa)
	for i := range nodes {
		nodes[i] = cadvisorapi.Node{Id: i, Memory: 1 << 36}
	}
	return nodes
}

func (m *manager) start() error {
	found, running := containermap.NewContainerMap(), sets.New[string]()
	for _, c := range runningContainers() {
		id := c[0] + "-" + c[1]
		found.Add(c[0], c[1], id)
		running.Insert(id)
	}
	if err := m.dm.Start(klog.Background(), pods.active, &sources, found, running); err != nil {
		return err
	}
	go func() { // nobody else reads them, and 1.31 would block
		for u := range m.dm.Updates() {
			send(reply{"event": "update", "pods": u.PodUIDs})
		}
	}()
	m.watchRegistry(m.dm.GetWatcherHandler())
	return nil
}

func (m *manager) watchRegistry(handler cache.PluginHandler) {
	if settings.registry == "" {
		return
	}
	plugins := pluginmanager.NewPluginManager(settings.registry, &record.FakeRecorder{})
	plugins.AddHandler(pluginregistration.DevicePlugin, handler)
	go plugins.Run(background, &sources, make(chan struct{}))
}

func (m *manager) stop() error { return m.dm.Stop(klog.Background()) }

func (m *manager) capacity() (v1.ResourceList, v1.ResourceList, []string) {
	return m.dm.GetCapacity(klog.Background())
}

func (m *manager) node(context.Context, bool) (*v1.Node, error) {
	capacity, allocatable, _ := m.capacity()
	return nodeWith(capacity, allocatable), nil
}

// everyReason stands in for preemption, which would evict other pods.
type everyReason struct{}

type reasons = []lifecycle.PredicateFailureReason

func (everyReason) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, all reasons, _ lifecycle.Operation) (reasons, error) {
	return all, nil
}

func (m *manager) admit(pod *v1.Pod) error {
	attributes := &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: pods.others(pod), Operation: lifecycle.AddOperation}
	for _, handler := range m.handlers {
		if r := handler.Admit(background, attributes); !r.Admit {
			return &refusal{r.Reason, r.Message}
		}
	}
	return nil
}

func (m *manager) runOptions(pod *v1.Pod, c *v1.Container) (*runOptions, error) {
	o, err := m.dm.GetDeviceRunContainerOptions(background, pod, c)
	if o == nil || err != nil {
		return nil, err
	}
	all := newRunOptions(o.Envs, o.Mounts, o.Devices)
	for _, a := range o.Annotations {
		all.Annotations[a.Name] = a.Value
	}
	for _, d := range o.CDIDevices {
		all.CDIDevices = append(all.CDIDevices, d.Name)
	}
	return all, nil
}

func (m *manager) devices(pod *v1.Pod, container string) any {
	status := v1.PodStatus{}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: c.Name})
	}
	m.dm.UpdateAllocatedResourcesStatus(klog.Background(), pod, &status)
	return reply{
		"container":   m.dm.GetDevices(string(pod.UID), container),
		"allocatable": m.dm.GetAllocatableDevices(klog.Background()),
		"status":      status.ContainerStatuses,
	}
}
