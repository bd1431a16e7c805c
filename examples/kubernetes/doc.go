// Package kubernetes has a manifest, throttr.yaml, that runs Throttr servers in Kubernetes. Its
// tests check the manifest without a cluster. It is a module of its own, because only they need the
// types of Kubernetes.
package kubernetes
