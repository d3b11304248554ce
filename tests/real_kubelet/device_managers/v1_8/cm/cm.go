// Package cm is as much of 1.8's pkg/kubelet/cm as device plugins need; the whole of it brings cgroups and cadvisor.
// The build adds two pieces of that release as they are: device_plugin_handler.go, and the method GetResources of
// container_manager_linux.go.
package cm

import (
	"sync"

	"k8s.io/api/core/v1"
)

type containerManagerImpl struct {
	sync.RWMutex
	capacity            v1.ResourceList
	devicePluginHandler DevicePluginHandler
}

// New does what NewContainerManager does about device plugins when their feature gate is on.
func New() (*containerManagerImpl, error) {
	cm := &containerManagerImpl{capacity: v1.ResourceList{}}
	handler, err := NewDevicePluginHandlerImpl(cm.update)
	cm.devicePluginHandler = handler
	return cm, err
}

func (cm *containerManagerImpl) update(changes v1.ResourceList) {
	cm.Lock()
	defer cm.Unlock()
	for name, quantity := range changes {
		if quantity.Value() <= 0 {
			delete(cm.capacity, name)
		} else {
			cm.capacity[name] = quantity
		}
	}
}

func (cm *containerManagerImpl) Start() error { return cm.devicePluginHandler.Start() }

func (cm *containerManagerImpl) Devices() any { return cm.devicePluginHandler.Devices() }

func (cm *containerManagerImpl) GetCapacity() v1.ResourceList {
	cm.RLock()
	defer cm.RUnlock()
	all := v1.ResourceList{}
	for name, quantity := range cm.capacity {
		all[name] = quantity
	}
	return all
}
