// Package kubetest starts a cluster of a test's own: a real etcd and kube-apiserver on
// free ports, and kwok, which says that Pods run. Nothing executes in them. It is for tests
// only, imports client-go, and skips nothing: without the programs a test fails.
//
// The API server has RBAC, and the admission that clusters have: Pod security, quotas, service
// accounts, validating policies. There is no controller manager and no scheduler. A small
// scheduler in the test's process binds Pods by what they request, and ends those that are
// deleted; quotas are counted by admission only, and what an owner leaves is not collected.
//
// A Pod whose image begins with [Held] is left alone after it was bound, so that a test
// gives it the status that it wants.
package kubetest
