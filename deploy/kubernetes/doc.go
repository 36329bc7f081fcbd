// Package kubernetes holds the manifests of rollcall (kustomize) and the tests that hold them to the code.
package kubernetes
