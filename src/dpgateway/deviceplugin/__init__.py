"""The front that every kubelet since 1.8 knows: the device-plugin API, in all its versions."""
