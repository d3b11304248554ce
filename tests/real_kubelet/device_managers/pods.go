package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// podList are the active pods, oldest first.
type podList struct {
	sync.Mutex
	all []*v1.Pod
}

var (
	pods      podList
	admission sync.Mutex // the kubelet admits one pod at a time
)

func (p *podList) active() []*v1.Pod {
	p.Lock()
	defer p.Unlock()
	return append([]*v1.Pod{}, p.all...)
}

func (p *podList) add(pod *v1.Pod) {
	p.remove(pod.Name)
	p.Lock()
	defer p.Unlock()
	p.all = append(p.all, pod)
}

func (p *podList) remove(name string) {
	p.Lock()
	defer p.Unlock()
	kept := []*v1.Pod{}
	for _, pod := range p.all {
		if pod.Name != name {
			kept = append(kept, pod)
		}
	}
	p.all = kept
}

// others are the active pods but this one, as the kubelet hands them to its admission handlers.
func (p *podList) others(pod *v1.Pod) []*v1.Pod {
	all := []*v1.Pod{}
	for _, other := range p.active() {
		if other.UID != pod.UID {
			all = append(all, other)
		}
	}
	return all
}

func (p *podList) container(pod, container string) (*v1.Pod, *v1.Container, error) {
	for _, one := range p.active() {
		if one.Name != pod {
			continue
		}
		for _, c := range containers(one) {
			if c.Name == container {
				return one, c, nil
			}
		}
		return nil, nil, fmt.Errorf("device_manager: pod %q has no container %q", pod, container)
	}
	return nil, nil, fmt.Errorf("device_manager: no active pod %q", pod)
}

func containers(pod *v1.Pod) []*v1.Container {
	all := []*v1.Container{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// newPod takes containers as the API has them; "resources" may be just {name: count}, limits and requests in one.
func newPod(q request) (*v1.Pod, error) {
	init, err := newContainers(q.Init)
	if err != nil {
		return nil, err
	}
	app, err := newContainers(q.Containers)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: q.Pod, Namespace: "default", UID: types.UID(q.Pod), CreationTimestamp: metav1.Now()},
		Spec:       v1.PodSpec{InitContainers: init, Containers: app},
	}, err
}

func newContainers(given []map[string]any) ([]v1.Container, error) {
	all := make([]v1.Container, len(given))
	for i, spec := range given {
		if flat, ok := spec["resources"].(map[string]any); ok && flat["limits"] == nil {
			quantities := map[string]string{}
			for name, n := range flat {
				quantities[name] = fmt.Sprint(n)
			}
			spec["resources"] = map[string]any{"limits": quantities, "requests": quantities}
		}
		raw, err := json.Marshal(spec)
		if err == nil {
			err = json.Unmarshal(raw, &all[i])
		}
		if err != nil {
			return nil, fmt.Errorf("device_manager: container %s: %w", raw, err)
		}
	}
	return all, nil
}

// refusal is an admission handler's no.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

func admit(m deviceManager, q request) reply {
	pod, err := newPod(q)
	if err != nil {
		return failed(err)
	}
	began := time.Now()
	admission.Lock()
	pods.add(pod)
	err = m.admit(pod)
	if err != nil { // the kubelet fails the pod, and then it isn't an active one
		pods.remove(pod.Name)
	}
	admission.Unlock()
	r := reply{"ok": err == nil, "seconds": time.Since(began).Seconds(), "containers": []reply{}}
	if err != nil {
		r["error"], r["stage"] = err.Error(), "admit"
		if no, ok := err.(*refusal); ok {
			r["reason"] = no.reason
		}
	} else if q.Start {
		startAll(m, pod, r)
	}
	return r
}

func startAll(m deviceManager, pod *v1.Pod, r reply) {
	all := []reply{}
	for _, c := range containers(pod) {
		one := startContainer(m, pod, c)
		all = append(all, one)
		if one["ok"] == false && r["ok"] == true {
			r["ok"], r["error"], r["stage"] = false, one["error"], "start"
		}
	}
	r["containers"] = all
}

func startContainer(m deviceManager, pod *v1.Pod, c *v1.Container) reply {
	began := time.Now()
	options, err := m.runOptions(pod, c)
	r := reply{"name": c.Name, "ok": err == nil, "options": options, "seconds": time.Since(began).Seconds()}
	if err != nil {
		r["error"] = err.Error()
	}
	return r
}

// runOptions is what the devices of a container add to it.
type runOptions struct {
	Envs        map[string]string `json:"envs"`
	Mounts      []mount           `json:"mounts"`
	Devices     []node            `json:"devices"`
	Annotations map[string]string `json:"annotations"`
	CDIDevices  []string          `json:"cdi_devices"`
}

type mount struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	ReadOnly      bool   `json:"read_only"`
}

type node struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	Permissions   string `json:"permissions"`
}

func newRunOptions(envs []kubecontainer.EnvVar, mounts []kubecontainer.Mount, devices []kubecontainer.DeviceInfo) *runOptions {
	o := &runOptions{Envs: map[string]string{}, Mounts: []mount{}, Devices: []node{}, Annotations: map[string]string{}, CDIDevices: []string{}}
	for _, e := range envs {
		o.Envs[e.Name] = e.Value
	}
	for _, m := range mounts {
		o.Mounts = append(o.Mounts, mount{m.ContainerPath, m.HostPath, m.ReadOnly})
	}
	for _, d := range devices {
		o.Devices = append(o.Devices, node{d.PathInContainer, d.PathOnHost, d.Permissions})
	}
	return o
}
