package main

import (
	"flag"

	"device_manager/cm"
	"k8s.io/api/core/v1"
)

const release = "1.8"

func logFlags() { flag.Set("logtostderr", "true") }

// containerManager is where 1.8 keeps its devices; the type itself isn't exported.
type containerManager interface {
	Start() error
	Devices() any
	GetCapacity() v1.ResourceList
}

type manager struct {
	containerManager
	resources func(*v1.Pod, *v1.Container) (*runOptions, error)
}

func newManager() (deviceManager, error) {
	c, err := cm.New()
	if err != nil {
		return nil, err
	}
	return &manager{c, func(pod *v1.Pod, container *v1.Container) (*runOptions, error) {
		o, err := c.GetResources(pod, container, pods.active())
		if err != nil {
			return nil, err
		}
		return newRunOptions(o.Envs, o.Mounts, o.Devices), nil
	}}, nil
}

func (m *manager) start() error { return m.Start() }

// stop: 1.8 has nothing to stop, its process just ends.
func (m *manager) stop() error { return nil }

// capacity counts healthy devices only, and allocatable follows it.
func (m *manager) capacity() (v1.ResourceList, v1.ResourceList, []string) {
	return m.GetCapacity(), m.GetCapacity(), nil
}

// admit: 1.8 calls Allocate when a container starts. Its scheduler predicates don't run here.
func (m *manager) admit(*v1.Pod) error { return nil }

func (m *manager) runOptions(pod *v1.Pod, c *v1.Container) (*runOptions, error) {
	return m.resources(pod, c)
}

func (m *manager) devices(*v1.Pod, string) any { return reply{"registered": m.Devices()} }
