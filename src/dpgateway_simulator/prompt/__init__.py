"""`dpgateway simulate`: one simulated kubelet that a script drives, or a person at a prompt.

command         the command: its options, and the checks before a kubelet starts
foreground      one kubelet until a signal, or the end of the work
session         one kubelet that words drive
script          files of steps
prompt          a terminal: history, help, events above the line
completion      completes a line
verbs           the table of verbs
steps           the verbs that do something
checks          the verbs that wait, check or show
terminal_verbs  the verbs that only a terminal has
printing        events, answers and tables, as text or JSON
"""
