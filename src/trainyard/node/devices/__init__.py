"""GPUs of this machine: how they are found, which of them the node may use, and which pod has which.

device.py        a device, and the inventory of a machine
drivers.py       whether a driver is loaded
discovery.py     the inventory, from NVML in a process of its own (nvml_probe.py) and from the kernel (kfd.py)
visibility.py    which devices the variables of the shell allow; pure
allocation.py    which free devices a pod gets; pure
environment.py   the variables by which a container sees its devices, and no others; pure
checkpoint.py    the file of the assignments, for a node that was killed
manager.py       the device manager of a node
sampler.py       the use of the devices, from processes of its own (nvml_samples.py, kfd_samples.py)
use_report.py    the use of the devices in the Node object
labels.py        the labels of the Node object that name its devices; pure
processes.py     whose processes use a device
kernel_log.py    what the kernel log says of a device: NVIDIA's Xid errors
"""
