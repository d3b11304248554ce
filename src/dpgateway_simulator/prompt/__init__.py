"""`dpgateway simulate`: one simulated kubelet, driven by a script or at a prompt.

command         the command: its options, and the checks before a kubelet starts
foreground      one kubelet until a signal, or the end of its script or prompt
session         one kubelet with its output, and the parsers of steps' words
script          files of steps
prompt          the terminal: history, help, events above the line
completion      completion of a line
verbs           the table of verbs
steps           the verbs that act on the kubelet
cluster_verbs   the verbs that act on the cluster: pods, classes, claims, slices, the API server
checks          the verbs that wait, check or show
terminal_verbs  the verbs of the terminal only
printing        events, answers and tables, as text or JSON
"""
