// Program device_manager runs the device manager of one kubelet release, and nothing else of that kubelet. It is
// driven over JSON lines: one request a line on stdin, {"id": 1, "op": "capacity"}, and its reply on stdout under the
// same id. Lines with an "event" come unasked. It ends with its stdin.
//
// This file and pods.go are compiled into every release's program, beside that release's main.go, which says how this
// release is built, started and asked.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deviceManager is what a release's main.go makes of its kubelet's code.
type deviceManager interface {
	start() error
	stop() error
	// capacity is what the kubelet's next status sync would see; removed are resources whose grace period ended.
	capacity() (capacity, allocatable v1.ResourceList, removed []string)
	// admit runs the kubelet's own admission handlers, as far as they have to do with devices.
	admit(pod *v1.Pod) error
	// runOptions is what the kubelet does with devices when it starts a container, for the first time or again.
	runOptions(pod *v1.Pod, container *v1.Container) (*runOptions, error)
	devices(pod *v1.Pod, container string) any
}

var settings struct {
	policy, scope, gates, registry, running string
	numa                                    int
}

// podSources is the kubelet's config.SourcesReady: before its sources are read, a kubelet frees nobody's devices.
type podSources struct{ ready atomic.Bool }

func (s *podSources) AddSource(string) {}
func (s *podSources) AllReady() bool   { return s.ready.Load() }

var sources podSources

type request struct {
	ID         int              `json:"id"`
	Op         string           `json:"op"`
	Pod        string           `json:"pod"`
	Container  string           `json:"container"`
	Init       []map[string]any `json:"init"`
	Containers []map[string]any `json:"containers"`
	Start      bool             `json:"start"`
	Value      bool             `json:"value"`
}

type reply map[string]any

func failed(err error) reply { return reply{"ok": false, "error": err.Error()} }

var answers struct {
	sync.Mutex
	*json.Encoder
}

func send(r reply) {
	answers.Lock()
	defer answers.Unlock()
	if err := answers.Encode(r); err != nil { // nobody reads any more
		os.Exit(1)
	}
}

func handle(m deviceManager, q request) reply {
	switch q.Op {
	case "capacity":
		capacity, allocatable, removed := m.capacity()
		return reply{"ok": true, "capacity": counts(capacity), "allocatable": counts(allocatable), "removed": append([]string{}, removed...)}
	case "admit":
		return admit(m, q)
	case "start-container":
		pod, container, err := pods.container(q.Pod, q.Container)
		if err != nil {
			return failed(err)
		}
		return startContainer(m, pod, container)
	case "remove":
		pods.remove(q.Pod)
		return reply{"ok": true}
	case "devices":
		pod, _, err := pods.container(q.Pod, q.Container)
		if err != nil {
			return failed(err)
		}
		return reply{"ok": true, "devices": m.devices(pod, q.Container)}
	case "sources-ready":
		sources.ready.Store(q.Value)
		return reply{"ok": true}
	case "stop":
		if err := m.stop(); err != nil {
			return failed(err)
		}
		return reply{"ok": true}
	}
	return failed(errors.New("device_manager: unknown op " + q.Op))
}

func counts(list v1.ResourceList) map[string]int64 {
	all := map[string]int64{}
	for name, quantity := range list {
		all[string(name)] = quantity.Value()
	}
	return all
}

// nodeWith is this node as the API server has it just after a status sync, with room for any pod.
func nodeWith(capacity, allocatable v1.ResourceList) *v1.Node {
	for name, n := range map[v1.ResourceName]int64{"cpu": 64, "memory": 1 << 40, "pods": 1000, "ephemeral-storage": 1 << 40} {
		capacity[name] = *resource.NewQuantity(n, resource.DecimalSI)
		allocatable[name] = capacity[name]
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: v1.NodeStatus{Capacity: capacity, Allocatable: allocatable}}
}

// runningContainers are the pod and container names that the container runtime shows running when the kubelet starts.
func runningContainers() [][2]string {
	all := [][2]string{}
	for _, one := range strings.Split(settings.running, ",") {
		if pod, container, ok := strings.Cut(one, "/"); ok {
			all = append(all, [2]string{pod, container})
		}
	}
	return all
}

func readSettings() {
	ready := flag.Bool("sources-ready", true, "the kubelet has read its pod sources")
	flag.StringVar(&settings.policy, "policy", "none", "topology manager policy, from 1.24 on")
	flag.StringVar(&settings.scope, "scope", "container", "topology manager scope, from 1.24 on")
	flag.IntVar(&settings.numa, "numa", 1, "NUMA nodes of the machine, from 1.24 on")
	flag.StringVar(&settings.gates, "gates", "", "feature gates, A=true,B=false, from 1.24 on")
	flag.StringVar(&settings.registry, "registry", "", "directory of the plugin watcher, from 1.12 on; none without it")
	flag.StringVar(&settings.running, "running", "", "pod/container,... found running at the start, from 1.25 on")
	logFlags()
	flag.Parse()
	sources.ready.Store(*ready)
}

func main() {
	answers.Encoder = json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr // 1.8 to 1.12 print to it
	readSettings()
	m, err := newManager()
	if err == nil {
		err = m.start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	send(reply{"event": "ready", "release": release})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		q := request{}
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			send(failed(err))
			continue
		}
		go answer(m, q)
	}
}

func answer(m deviceManager, q request) {
	r := handle(m, q)
	r["id"] = q.ID
	send(r)
	if q.Op == "stop" {
		os.Exit(0)
	}
}
