package main

import (
	"flag"

	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/scheduler/algorithm"
)

const release = "1.10"

func logFlags() { flag.Set("logtostderr", "true") }

type manager struct {
	dm        *devicemanager.ManagerImpl
	predicate lifecycle.PodAdmitHandler
}

func newManager() (deviceManager, error) {
	dm, err := devicemanager.NewManagerImpl()
	if err != nil {
		return nil, err
	}
	m := &manager{dm: dm}
	m.predicate = lifecycle.NewPredicateAdmitHandler(m.node, everyReason{}, dm.Allocate)
	return m, nil
}

func (m *manager) start() error { return m.dm.Start(pods.active, &sources) }

func (m *manager) stop() error { return m.dm.Stop() }

func (m *manager) capacity() (v1.ResourceList, v1.ResourceList, []string) { return m.dm.GetCapacity() }

func (m *manager) node() (*v1.Node, error) {
	capacity, allocatable, _ := m.capacity()
	return nodeWith(capacity, allocatable), nil
}

// everyReason stands in for preemption, which would evict other pods.
type everyReason struct{}

func (everyReason) HandleAdmissionFailure(_ *v1.Pod, reasons []algorithm.PredicateFailureReason) (bool, []algorithm.PredicateFailureReason, error) {
	return false, reasons, nil
}

func (m *manager) admit(pod *v1.Pod) error {
	if r := m.predicate.Admit(&lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: pods.others(pod)}); !r.Admit {
		return &refusal{r.Reason, r.Message}
	}
	return nil
}

func (m *manager) runOptions(pod *v1.Pod, c *v1.Container) (*runOptions, error) {
	o, err := m.dm.GetDeviceRunContainerOptions(pod, c)
	if o == nil || err != nil {
		return nil, err
	}
	all := newRunOptions(o.Envs, o.Mounts, o.Devices)
	for _, a := range o.Annotations {
		all.Annotations[a.Name] = a.Value
	}
	return all, nil
}

func (m *manager) devices(*v1.Pod, string) any { return reply{"registered": m.dm.Devices()} }
