"""`dpgateway simulate`: one simulated kubelet that a script drives, or a person at a prompt."""
