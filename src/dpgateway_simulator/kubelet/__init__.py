"""The simulated kubelet: its device manager, the pods that it admits, and how it is started, stopped and misled."""
