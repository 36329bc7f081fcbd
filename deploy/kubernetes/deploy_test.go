package kubernetes

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"rollcall/config"
	"rollcall/pkg/admin"
)

var update = flag.Bool("update", false, "write base/prometheusrule.yaml")

// Kinds without a light Go module are decoded into these. They have the fields that are used and no others, so that decoding stays strict
// (prometheus-operator: Documentation/api-reference/api.md; KEDA: docs, ScaledObject specification, Apache Kafka scaler).
type meta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

type serviceMonitor struct {
	meta
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Endpoints []struct {
			Port          string              `json:"port"`
			Path          string              `json:"path"`
			Interval      string              `json:"interval"`
			ScrapeTimeout string              `json:"scrapeTimeout"`
			Relabelings   []map[string]string `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	meta
	Spec ruleGroups `json:"spec"`
}

type ruleGroups struct {
	Groups []struct {
		Name     string `json:"name"`
		Interval string `json:"interval,omitempty"`
		Rules    []struct {
			Record      string            `json:"record,omitempty"`
			Alert       string            `json:"alert,omitempty"`
			Expr        string            `json:"expr"`
			For         string            `json:"for,omitempty"`
			KeepFiring  string            `json:"keep_firing_for,omitempty"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"rules"`
	} `json:"groups"`
}

type scalingPolicy struct {
	StabilizationWindowSeconds int `json:"stabilizationWindowSeconds"`
	Policies                   []struct {
		Type          string `json:"type"`
		Value         int    `json:"value"`
		PeriodSeconds int    `json:"periodSeconds"`
	} `json:"policies"`
}

type scaledObject struct {
	meta
	Spec struct {
		ScaleTargetRef struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		PollingInterval int `json:"pollingInterval"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior struct {
					ScaleUp   scalingPolicy `json:"scaleUp"`
					ScaleDown scalingPolicy `json:"scaleDown"`
				} `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// objects are what an overlay builds, each decoded strictly.
type objects struct {
	account  *corev1.ServiceAccount
	settings *corev1.ConfigMap
	service  *corev1.Service
	deploy   *appsv1.Deployment
	budget   *policyv1.PodDisruptionBudget
	network  *networkingv1.NetworkPolicy
	monitor  *serviceMonitor
	rules    *prometheusRule
	scaler   *scaledObject
}

func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// build runs kustomize, as kubectl apply -k does, and decodes what comes out.
func build(t *testing.T, dir string) objects {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	var o objects
	d := decoder(t)
	for _, r := range result.Resources() {
		text, err := r.AsYAML()
		require.NoError(t, err)
		name := r.GetKind() + "/" + r.GetName()
		switch r.GetKind() {
		case "ServiceMonitor":
			o.monitor = new(serviceMonitor)
			require.NoError(t, yaml.UnmarshalStrict(text, o.monitor), name)
			continue
		case "PrometheusRule":
			o.rules = new(prometheusRule)
			require.NoError(t, yaml.UnmarshalStrict(text, o.rules), name)
			continue
		case "ScaledObject":
			o.scaler = new(scaledObject)
			require.NoError(t, yaml.UnmarshalStrict(text, o.scaler), name)
			continue
		}
		obj, _, err := d.Decode(text, nil, nil)
		require.NoError(t, err, name)
		switch x := obj.(type) {
		case *corev1.ServiceAccount:
			o.account = x
		case *corev1.ConfigMap:
			o.settings = x
		case *corev1.Service:
			o.service = x
		case *appsv1.Deployment:
			o.deploy = x
		case *policyv1.PodDisruptionBudget:
			o.budget = x
		case *networkingv1.NetworkPolicy:
			o.network = x
		default:
			require.Failf(t, "unexpected object", "%s is a %T", name, obj)
		}
	}
	require.NotNil(t, o.account)
	require.NotNil(t, o.settings)
	require.NotNil(t, o.service)
	require.NotNil(t, o.deploy)
	require.NotNil(t, o.budget)
	require.NotNil(t, o.network)
	require.NotNil(t, o.monitor)
	require.NotNil(t, o.rules)
	return o
}

// overlays runs f for each overlay.
func overlays(t *testing.T, f func(t *testing.T, o objects)) {
	t.Helper()
	for _, name := range []string{"small", "scaled"} {
		t.Run(name, func(t *testing.T) { f(t, build(t, "overlays/"+name)) })
	}
}

// load reads the settings of the ConfigMap as the worker does; secrets come from the mounts.
func load(t *testing.T, o objects) *config.Config {
	t.Helper()
	mounted := secretFiles(t, o)
	environ := []string{"HOSTNAME=rollcall-5d8f7c9b6d-x2x4z", "KUBERNETES_SERVICE_HOST=10.0.0.1", "GOMEMLIMIT=1073741824"}
	for k, v := range o.settings.Data {
		environ = append(environ, k+"="+v)
	}
	cfg, err := config.Load(environ, func(name string) ([]byte, error) {
		if slices.Contains(mounted, name) {
			return []byte("secret\n"), nil
		}
		return nil, os.ErrNotExist
	})
	require.NoError(t, err)
	return cfg
}

// secretFiles are the files that the worker finds: the keys of the example secret under the mount.
func secretFiles(t *testing.T, o objects) []string {
	t.Helper()
	text, err := os.ReadFile("base/secret.example.yaml")
	require.NoError(t, err)
	obj, _, err := decoder(t).Decode(text, nil, nil)
	require.NoError(t, err)
	secret, ok := obj.(*corev1.Secret)
	require.True(t, ok)
	pod := o.deploy.Spec.Template.Spec
	var files []string
	for _, v := range pod.Volumes {
		require.NotNil(t, v.Secret, "the only volumes are secrets")
		require.Equal(t, secret.Name, v.Secret.SecretName)
		for _, m := range worker(t, o).VolumeMounts {
			require.Equal(t, v.Name, m.Name)
			require.True(t, m.ReadOnly)
			for key := range secret.StringData {
				files = append(files, path.Join(m.MountPath, key))
			}
		}
	}
	require.NotEmpty(t, files)
	return files
}

func worker(t *testing.T, o objects) corev1.Container {
	t.Helper()
	require.Len(t, o.deploy.Spec.Template.Spec.Containers, 1)
	return o.deploy.Spec.Template.Spec.Containers[0]
}

// The settings are complete, known, without remarks, and the pod's numbers fit them.
func TestSettings(t *testing.T) {
	names := map[string]config.Setting{}
	for _, s := range config.Describe() {
		names[s.Name] = s
	}
	overlays(t, func(t *testing.T, o objects) {
		for name := range o.settings.Data {
			s, ok := names[strings.TrimSuffix(name, "_FILE")]
			require.True(t, ok, "%s is no setting", name)
			require.Equal(t, strings.HasSuffix(name, "_FILE"), s.Secret, "%s: secrets are files, and nothing else", name)
		}
		for _, s := range names {
			if s.Required {
				require.Contains(t, o.settings.Data, s.Name)
			}
		}
		cfg := load(t, o)
		require.Empty(t, cfg.Warnings)
		require.Empty(t, cfg.Kafka.InstanceID, "no static membership in a Deployment")

		pod := o.deploy.Spec.Template.Spec
		const leave = 10 * time.Second // leaving the group and closing clients
		grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
		require.Greater(t, grace, cfg.Process.ShutdownTimeout+leave)
		w := worker(t, o)
		memory := w.Resources.Limits.Memory().Value()
		require.Positive(t, memory)
		require.LessOrEqual(t, int64(cfg.Load.BufferMaxBytes)*2, memory, "the buffer leaves room for running totals, restoring and one body")
		require.LessOrEqual(t, w.Resources.Requests.Memory().Value(), memory)
		require.True(t, w.Resources.Limits.Cpu().IsZero(), "a CPU limit throttles")
	})
}

// The pod is locked down, and both containers run the same image with the same settings.
func TestPod(t *testing.T) {
	overlays(t, func(t *testing.T, o objects) {
		pod := o.deploy.Spec.Template.Spec
		require.False(t, *pod.EnableServiceLinks)
		require.False(t, *pod.AutomountServiceAccountToken)
		require.False(t, *o.account.AutomountServiceAccountToken)
		require.Equal(t, o.account.Name, pod.ServiceAccountName)
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		require.Len(t, pod.InitContainers, 1)
		w, check := worker(t, o), pod.InitContainers[0]
		require.Equal(t, []string{"run"}, w.Args)
		require.Equal(t, []string{"check", "--connect", "--outages-pass"}, check.Args)
		require.Equal(t, w.Image, check.Image)
		require.Equal(t, w.EnvFrom, check.EnvFrom)
		require.Equal(t, w.VolumeMounts, check.VolumeMounts)
		require.Equal(t, o.settings.Name, w.EnvFrom[0].ConfigMapRef.Name, "kustomize put the hash in")
		require.NotEqual(t, "rollcall", o.settings.Name)
		for _, c := range []corev1.Container{w, check} {
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
			require.Equal(t, "GOMEMLIMIT", c.Env[0].Name)
			require.Equal(t, "limits.memory", c.Env[0].ValueFrom.ResourceFieldRef.Resource)
			require.Empty(t, c.Env[0].ValueFrom.ResourceFieldRef.ContainerName, "its own limit")
		}
		u := o.deploy.Spec.Strategy.RollingUpdate
		require.Zero(t, u.MaxUnavailable.IntValue())
		require.Equal(t, 1, u.MaxSurge.IntValue())
		for _, s := range []map[string]string{
			o.deploy.Spec.Selector.MatchLabels, o.service.Spec.Selector, o.budget.Spec.Selector.MatchLabels, o.network.Spec.PodSelector.MatchLabels,
			pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		} {
			require.NotEmpty(t, s)
			for k, v := range s {
				require.Equal(t, v, o.deploy.Spec.Template.Labels[k])
			}
		}
		for k, v := range o.monitor.Spec.Selector.MatchLabels {
			require.Equal(t, v, o.service.Labels[k])
		}
	})
}

// Everything that comes in goes to the port and the paths that the worker serves.
func TestPortsAndPaths(t *testing.T) {
	server := admin.New(admin.Config{Addr: "127.0.0.1:0"}, admin.Deps{Gatherer: prometheus.NewRegistry()})
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, server.Listen(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-ended) }()
	serves := func(path string) bool {
		resp, err := http.Get("http://" + server.Addr() + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode == http.StatusOK
	}
	require.False(t, serves("/healthz"), "the test can fail")
	overlays(t, func(t *testing.T, o objects) {
		cfg, w := load(t, o), worker(t, o)
		require.Len(t, w.Ports, 1)
		port := w.Ports[0]
		require.Equal(t, fmt.Sprintf(":%d", port.ContainerPort), string(cfg.Process.HTTPAddr))
		for name, p := range map[string]*corev1.Probe{"/livez": w.LivenessProbe, "/readyz": w.ReadinessProbe} {
			require.Equal(t, name, p.HTTPGet.Path)
			require.Equal(t, port.Name, p.HTTPGet.Port.String())
			require.True(t, serves(p.HTTPGet.Path))
		}
		require.Equal(t, "/livez", w.StartupProbe.HTTPGet.Path)
		require.Equal(t, port.Name, w.StartupProbe.HTTPGet.Port.String())
		require.Equal(t, port.Name, o.service.Spec.Ports[0].TargetPort.String())
		require.Equal(t, port.ContainerPort, o.service.Spec.Ports[0].Port)
		require.Equal(t, port.Name, o.network.Spec.Ingress[0].Ports[0].Port.String())
		require.Len(t, o.monitor.Spec.Endpoints, 1)
		e := o.monitor.Spec.Endpoints[0]
		require.Equal(t, o.service.Spec.Ports[0].Name, e.Port)
		require.True(t, serves(e.Path))
		require.Equal(t, []map[string]string{{"targetLabel": "group", "replacement": cfg.Kafka.Group, "action": "replace"}}, e.Relabelings)

		open := map[int]bool{}
		for _, rule := range o.network.Spec.Egress {
			require.Empty(t, rule.To, "addresses are an overlay's")
			for _, p := range rule.Ports {
				last := p.Port.IntValue()
				if p.EndPort != nil {
					last = int(*p.EndPort)
				}
				for n := p.Port.IntValue(); n <= last; n++ {
					open[n] = true
				}
			}
		}
		require.True(t, open[53])
		require.True(t, open[8040], "the back ends, to which front ends send loads on")
		for _, addr := range slices.Concat([]string(cfg.Kafka.Brokers), []string(cfg.StarRocks.HTTP), []string(cfg.StarRocks.MySQL)) {
			n, err := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
			require.NoError(t, err)
			require.True(t, open[n], "%s is shut off", addr)
		}
	})
}

// The scaler reads the group of the settings and never asks for more workers than there are partitions.
func TestScaler(t *testing.T) {
	require.Nil(t, build(t, "overlays/small").scaler)
	o := build(t, "overlays/scaled")
	s, cfg := o.scaler, load(t, o)
	require.NotNil(t, s)
	require.Nil(t, o.deploy.Spec.Replicas, "the scaler owns the number of replicas")
	require.Equal(t, [3]string{"apps/v1", "Deployment", o.deploy.Name}, [3]string{s.Spec.ScaleTargetRef.APIVersion, s.Spec.ScaleTargetRef.Kind, s.Spec.ScaleTargetRef.Name})
	partitions, err := strconv.Atoi(s.Metadata.Annotations["rollcall/partitions"])
	require.NoError(t, err)
	require.LessOrEqual(t, s.Spec.MaxReplicaCount, partitions)
	require.Greater(t, s.Spec.MinReplicaCount, 1)
	require.LessOrEqual(t, s.Spec.MinReplicaCount, s.Spec.MaxReplicaCount)
	require.Len(t, s.Spec.Triggers, 1)
	m := s.Spec.Triggers[0].Metadata
	require.Equal(t, "kafka", s.Spec.Triggers[0].Type)
	require.Equal(t, strings.Join(cfg.Kafka.Brokers, ","), m["bootstrapServers"])
	require.Equal(t, cfg.Kafka.Group, m["consumerGroup"])
	require.Equal(t, strings.Join(cfg.Kafka.Topics.Names, ","), m["topic"])
	require.Equal(t, "false", m["allowIdleConsumers"])
	require.EqualValues(t, 1, *build(t, "overlays/small").deploy.Spec.Replicas)
}

// The PrometheusRule is the rules file, word for word.
func TestRules(t *testing.T) {
	rules, err := os.ReadFile("../prometheus/rules.yml")
	require.NoError(t, err)
	const file = "base/prometheusrule.yaml"
	head := "# Written from deploy/prometheus/rules.yml: go test ./deploy/kubernetes -run TestRules -update\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: rollcall\nspec:\n"
	_, body, ok := strings.Cut("\n"+string(rules), "\ngroups:\n")
	require.True(t, ok)
	var b strings.Builder
	b.WriteString(head)
	for line := range strings.Lines("groups:\n" + body) {
		if strings.TrimSpace(line) != "" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "run: go test ./deploy/kubernetes -run TestRules -update")

	var want ruleGroups
	require.NoError(t, yaml.UnmarshalStrict(rules, &want))
	require.NotEmpty(t, want.Groups)
	require.Equal(t, want, build(t, "overlays/small").rules.Spec, "kustomize changed a rule")
}
