"""A real Kubernetes control plane, for tests and for trying closeby out: etcd, kube-apiserver and the rest.

`python -m tests.control_plane` starts one by hand. The programs come from a folder that KUBEBUILDER_ASSETS
names, or are built once by Go from the module in this folder. `CLOSEBY_TEST_KUBECONFIG` names a cluster that
runs already and is taken instead.
"""
