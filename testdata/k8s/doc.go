// Package k8s holds the manifests of docs/examples/k8s against the Go types of the
// controllers that read them. Its modules are listed in a file of their own, since
// fabrun needs none of them:
//
//	go test -modfile=testdata/k8s/k8s.mod -tags manifests ./testdata/k8s
package k8s
