"""The front for DRA on real nodes. It is a package, so that its cluster ends with its last test.

test_claims   what pods ask for, and what they are told
test_life     what happens to pods, and to the node under them
test_fronts   a resource goes from one front to the other
test_slices   what the API server takes
node          the gateway's process on a node, and what asks for its devices
second        another driver beside it
churn         pods that come and go, and what their containers have
switches      a program: changes of front under such pods
"""
