"""Sockets in the kubelet's plugins_registry, where it looks for plugins, for any front.

socket  one registration: what the kubelet is told, and whether it accepted
wire    generated messages
"""
