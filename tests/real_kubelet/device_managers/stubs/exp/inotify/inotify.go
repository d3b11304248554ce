// Package inotify was removed from golang.org/x/exp. In kubelets up to 1.12 it watches the folder of static pods, which
// a device manager hasn't got.
package inotify

import "errors"

const (
	IN_ATTRIB = 1 << iota
	IN_CREATE
	IN_CLOSE_WRITE
	IN_DELETE
	IN_DELETE_SELF
	IN_ISDIR
	IN_MODIFY
	IN_MOVED_FROM
	IN_MOVED_TO
)

var errNone = errors.New("this build has no inotify")

type Event struct {
	Mask, Cookie uint32
	Name         string
}

type Watcher struct {
	Error chan error
	Event chan *Event
}

func NewWatcher() (*Watcher, error) { return nil, errNone }

func (*Watcher) AddWatch(string, uint32) error { return errNone }
func (*Watcher) RemoveWatch(string) error      { return errNone }
func (*Watcher) Close() error                  { return nil }
