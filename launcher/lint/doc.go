// Package lint reads job scripts (sbatch and plain shell), Dockerfiles and
// Kubernetes manifests without running them and names the mistakes that cost RDMA jobs their fabric: settings that no
// rank will see, values that do not mean what they seem to, rendezvous on
// localhost, ports that collide, one HCA per rank. The script is parsed by a
// real shell parser, so that quoting, here-documents, continuation lines and
// nested shells are what they are to bash.
//
//	script := lint.Read("job.sbatch", text)
//	problems := lint.Judge(script)
package lint
