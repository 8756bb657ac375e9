//go:build manifests

package k8s

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	training "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	npd "k8s.io/node-problem-detector/pkg/custompluginmonitor/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	lws "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/yaml"
)

const examples = "../../docs/examples/k8s"

// kinds are the types that the API server would read a document into, and the pods
// that its controller would make of it.
var kinds = map[string]func() (any, func() []core.PodSpec){
	"kubeflow.org/v2beta1 MPIJob": func() (any, func() []core.PodSpec) {
		j := &mpi.MPIJob{}
		return j, func() []core.PodSpec {
			return []core.PodSpec{j.Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeWorker].Template.Spec}
		}
	},
	"kubeflow.org/v1 PyTorchJob": func() (any, func() []core.PodSpec) {
		j := &training.PyTorchJob{}
		return j, func() []core.PodSpec {
			return []core.PodSpec{j.Spec.PyTorchReplicaSpecs[training.PyTorchJobReplicaTypeMaster].Template.Spec, j.Spec.PyTorchReplicaSpecs[training.PyTorchJobReplicaTypeWorker].Template.Spec}
		}
	},
	"trainer.kubeflow.org/v1alpha1 TrainingRuntime": func() (any, func() []core.PodSpec) {
		r := &trainer.TrainingRuntime{}
		return r, func() []core.PodSpec {
			return []core.PodSpec{r.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec}
		}
	},
	"trainer.kubeflow.org/v1alpha1 TrainJob": func() (any, func() []core.PodSpec) {
		return &trainer.TrainJob{}, func() []core.PodSpec { return nil }
	},
	"jobset.x-k8s.io/v1alpha2 JobSet": func() (any, func() []core.PodSpec) {
		j := &jobset.JobSet{}
		return j, func() []core.PodSpec { return []core.PodSpec{j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec} }
	},
	"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": func() (any, func() []core.PodSpec) {
		s := &lws.LeaderWorkerSet{}
		return s, func() []core.PodSpec { return []core.PodSpec{s.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec} }
	},
	"batch/v1 Job": func() (any, func() []core.PodSpec) {
		j := &batch.Job{}
		return j, func() []core.PodSpec { return []core.PodSpec{j.Spec.Template.Spec} }
	},
	"v1 ConfigMap": func() (any, func() []core.PodSpec) {
		return &core.ConfigMap{}, func() []core.PodSpec { return nil }
	},
	"apps/v1 DaemonSet": func() (any, func() []core.PodSpec) {
		return &apps.DaemonSet{}, func() []core.PodSpec { return nil }
	},
}

// documents splits a file as kubectl does.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(text, []byte("\n---\n"))
}

// TestManifests: every field of every manifest is one that its API has, and every
// pod of a job has what RDMA needs.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		for _, doc := range documents(t, file) {
			var head struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(doc, &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			kind := head.APIVersion + " " + head.Kind
			into, known := kinds[kind]
			if !known {
				t.Errorf("%s: no type is known of %s", file, kind)
				continue
			}
			seen[kind] = true
			value, pods := into()
			if err := yaml.UnmarshalStrict(doc, value); err != nil {
				t.Errorf("%s: %s: %v", file, kind, err)
				continue
			}
			for _, pod := range pods() {
				readyForRDMA(t, file, kind == "trainer.kubeflow.org/v1alpha1 TrainingRuntime", pod)
			}
		}
	}
	for kind := range kinds {
		if !seen[kind] {
			t.Errorf("no example of %s", kind)
		}
	}
}

// readyForRDMA wants of every container of a pod what a job needs; elsewhere says
// that its devices are given to it elsewhere.
func readyForRDMA(t *testing.T, file string, elsewhere bool, pod core.PodSpec) {
	t.Helper()
	if len(pod.Containers) == 0 {
		t.Errorf("%s: a pod without containers", file)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil || !slices.Contains(c.SecurityContext.Capabilities.Add, "IPC_LOCK") {
			t.Errorf("%s: %s: no IPC_LOCK", file, c.Name)
		}
		rdma := false
		for name, n := range c.Resources.Limits {
			rdma = rdma || strings.HasPrefix(string(name), "rdma/") && !n.IsZero()
		}
		if !rdma && !elsewhere {
			t.Errorf("%s: %s: no RDMA resource", file, c.Name)
		}
		shm := ""
		for _, m := range c.VolumeMounts {
			if m.MountPath == "/dev/shm" {
				shm = m.Name
			}
		}
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
			return v.Name == shm && v.EmptyDir != nil && v.EmptyDir.Medium == core.StorageMediumMemory
		}) {
			t.Errorf("%s: %s: /dev/shm is the node's default", file, c.Name)
		}
	}
}

// TestStrict: a field that the API does not have is refused, or this test proves nothing.
func TestStrict(t *testing.T) {
	doc := documents(t, examples+"/jobset.yaml")[0]
	wrong := bytes.Replace(doc, []byte("parallelism:"), []byte("paralelism:"), 1)
	if err := yaml.UnmarshalStrict(wrong, &jobset.JobSet{}); err == nil || !strings.Contains(err.Error(), "paralelism") {
		t.Errorf("a wrong field: %v", err)
	}
}

// TestDetector: node-problem-detector takes the plugin's configuration, and the call
// is fabrun's.
func TestDetector(t *testing.T) {
	var config core.ConfigMap
	if err := yaml.UnmarshalStrict(documents(t, examples+"/node-health.yaml")[0], &config); err != nil {
		t.Fatal(err)
	}
	var c npd.CustomPluginConfig
	dec := json.NewDecoder(strings.NewReader(config.Data["fabrun.json"]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyConfiguration(); err != nil {
		t.Fatal(err)
	}
	if n := *c.PluginGlobalConfig.MaxOutputLength; n < 80 {
		t.Errorf("max_output_length %d cuts the line of 'fabrun check --npd', which has up to 80 bytes", n)
	}
	if rule := c.Rules[0]; !slices.Equal(rule.Args[:2], []string{"check", "--npd"}) || *rule.Timeout > *c.PluginGlobalConfig.Timeout {
		t.Errorf("rule %+v", rule)
	}
	// The detector wants the program to be there; here this test's own stands for it.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Rules[0].Path = self
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
