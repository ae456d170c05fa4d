// kwok says that Pods run where no kubelet does, for the tests of the Kubernetes backend.
module proxyfleet/e2e/tools/kube/kwok

go 1.26.0

tool sigs.k8s.io/kwok/cmd/kwok

require sigs.k8s.io/kwok v0.8.0
