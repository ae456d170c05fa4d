// Package kubernetes is the backend for a Kubernetes cluster: each proxy is a Pod that runs
// Squid, in one namespace, which several agents and installations may share.
//
// It imports the contract, squid, and client-go with what belongs to it.
//
// # What a proxy is made of
//
// A Secret of the proxy's own holds Squid's configuration and the hashed credentials. It owns
// everything else, so that nothing outlives it and nothing belongs to the agent's
// release: the Pod, a NetworkPolicy where the intent names client networks, a Service where
// the host exposes its proxies by one. All are called [backends.InstanceName]. Members of
// a pool share a PodDisruptionBudget, which all their Secrets own.
//
// # Whose is it
//
// Installation, host id, proxy and uid are labels of every object. An object under our name
// with other labels is a Conflict, and nothing of that uid is touched. What is removed is
// removed by its UID, so that a namesake that came meanwhile stays.
//
// An annotation of the Secret, the record, says what the proxy was last brought to. It is
// written when everything else is done: a proxy whose record has no generation is half-made.
//
// # Reading and waking
//
// What is decided on is read from the API server at that moment, because a cache cannot tell
// "gone" from "not seen yet". Informers on our labels wake the agent, and keep nodes,
// Pods and quotas for the offer; nothing polls. Only the name of a load balancer that has no
// address is looked up whenever it is read, and remembered for half a minute.
//
// # Order of making
//
// Secret, NetworkPolicy, Service, PodDisruptionBudget, Pod, and then the record. Changed rules
// replace the Pod: only so it is known when they hold. Deleting goes the other way round
// and waits until each is gone.
package kubernetes
