module gangway-kubernetes-crds

go 1.25.0

require (
	sigs.k8s.io/jobset v0.11.1
	sigs.k8s.io/kueue v0.17.0
)
